"""Notices that somebody else signs with this node's key.

Two nodes with a copy of one key file never hear each other: gossip does not return a message to its
author, and that is what both look like. But whoever has heard both has batches of this node's name
that it never made. The first question is for all of them, which finds an older twin, or what was
published before a database was lost. Each one is for what is about the own last number and above,
which finds a newer twin, because numbers start from the clock, and a copy of the whole folder,
which goes on from the same number.
"""

from __future__ import annotations

import logging
import math

from shoal_base.bounded import FEW
from shoal_p2p.fetch.client import RolloutClient
from shoal_p2p.net.access import DUPLICATE_KEY_CAUSE, DUPLICATE_KEY_REMEDY
from shoal_p2p.store.store import Store
from shoal_wire.codec import PayloadError, decode_batch
from shoal_wire.digests import batch_id as id_of_envelope
from shoal_wire.envelope import EnvelopeError, open_envelope
from shoal_wire.limits import MAX_BATCH_BYTES, WHOLE_MESSAGE_BYTES
from shoal_wire.rollout_messages import BatchRef, Envelopes, Listing, SinceQuery, WholeQuery
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason

_LOOK_BACK = FEW // 2
"""Own numbers before the last one that are looked at: what a copy signed since it was made."""

log = logging.getLogger(__name__)


class DuplicateIdentityCheck:
    """Asks peers what they have under this node's name."""

    def __init__(self, *, me: PeerId, asker: RolloutClient, own: Store) -> None:
        self._me = me
        self._asker = asker
        self._own = own
        self._asked = False
        self.found = False
        """True once a twin signs with this node's key, or its database was lost. Logged once."""

    async def ask(self, peer_id: PeerId) -> None:
        """Ask one peer, and check the first batch that this node does not know.

        Raises:
            NoAnswerError: the peer does not answer.
        """
        if self.found:
            return
        forgotten, latest = await self._own.own_numbers()
        about_latest = max(forgotten, latest - _LOOK_BACK)
        for after in (about_latest,) if self._asked else (forgotten, about_latest):
            query = SinceQuery(publisher=self._me, after_sequence=after, max_batches=FEW)
            listing = await self._asker.ask(peer_id, query, Listing)
            if (ref := await self._strange(listing)) is not None:
                # A listing is not signed: only the batch itself is proof. One will do.
                await self._prove(peer_id, ref, forgotten)
                break
        self._asked = True

    async def _strange(self, listing: Listing) -> BatchRef | None:
        """Return a listed batch that this node has not made, small enough to be looked at."""
        for ref in listing.batches[:FEW]:
            if ref.num_bytes <= WHOLE_MESSAGE_BYTES and not await self._own.is_own(ref.batch_id):
                return ref
        return None

    async def _prove(self, peer_id: PeerId, ref: BatchRef, forgotten: int) -> None:
        """Look at a listed batch; what is no batch of this node's key costs who listed it."""
        query = WholeQuery(batch_ids=(ref.batch_id,))
        answer = await self._asker.ask(peer_id, query, Envelopes)
        for envelope in answer.envelopes[:1]:
            try:
                opened = open_envelope(envelope)
            except EnvelopeError as error:
                self._asker.offend(peer_id, error.reason)
                return
            if id_of_envelope(envelope) != ref.batch_id:
                self._asker.offend(peer_id, Reason.WRONG_OBJECT)
            elif opened.signer != self._me:
                self._asker.offend(peer_id, Reason.MALFORMED_ANSWER)
            elif _number_in(opened.payload) > forgotten:
                self.found = True
                log.error(
                    "another node uses this identity, or this one's node.db was lost: peers have "
                    "batches signed with its key that it did not publish. It happens where %s; %s",
                    DUPLICATE_KEY_CAUSE,
                    DUPLICATE_KEY_REMEDY,
                )


def _number_in(payload: bytes) -> int | float:
    """Return a signed batch's number; of what this version cannot read, none is higher."""
    try:
        return decode_batch(payload, max_bytes=MAX_BATCH_BYTES).sequence
    except PayloadError:
        return math.inf

"""Detects that another node signs with this node's key.

Two nodes with copies of one key file never receive each other's messages, since gossip does not
return a message to its author. But their peers have batches of this identity that this node never
published. The first request is for all batches, which finds an older duplicate, or batches
published before a database was lost. Later requests start near the own last number. They find a
newer duplicate, whose numbers start from the clock, and a copy of the whole folder, which continues
from the same number: peers store the two batches of one number as evidence against their signer.

Peers have one connection per identity, so two nodes take it from each other in turn. Peers ban a
signer of several such pairs, and then answer neither node. Therefore this node asks each peer as
soon as it is connected, and one every five seconds while it publishes.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
from typing import TYPE_CHECKING

import trio

from shoal_base.bounded import FEW, BoundedDict
from shoal_base.waits import MINUTE_S, RETRY_S, SHORT_DEADLINE_S
from shoal_p2p.fetch.client import NoAnswerError, RolloutClient
from shoal_p2p.net.access import DUPLICATE_KEY_CAUSE, DUPLICATE_KEY_REMEDY
from shoal_p2p.net.interface import Host
from shoal_p2p.store.store import Store
from shoal_wire.codec import PayloadError, decode_batch
from shoal_wire.digests import batch_id as id_of_envelope
from shoal_wire.envelope import EnvelopeError, open_envelope
from shoal_wire.limits import MAX_BATCH_BYTES, WHOLE_MESSAGE_BYTES
from shoal_wire.rollout_messages import BatchRef, Envelopes, Listing, SinceQuery, WholeQuery
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_LOOK_BACK = FEW // 2
"""Number of own numbers before the last to check: a copy signed them since it was made."""

log = logging.getLogger(__name__)


class DuplicateIdentityCheck:
    """Requests batches of this node's own identity from peers."""

    def __init__(self, *, host: Host, asker: RolloutClient, own: Store, rng: random.Random) -> None:
        self._host = host
        self._me = host.peer_id
        self._asker = asker
        self._own = own
        self._rng = rng
        self._has_listed_all = False
        self._new_peers: BoundedDict[PeerId, None] = BoundedDict()
        """Peers that connected and were not asked since."""
        self._latest, self._latest_at = 0, -math.inf
        """The latest own number, and the time when it was seen first."""
        self.found = False
        """True once a duplicate, or the loss of the database, was detected. Logged once."""

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask each new peer, and while this node publishes any peer, until one batch is found."""
        self._host.add_peer_callbacks(connected=self._on_connected)
        self._new_peers.update(dict.fromkeys(self._host.connected_peers()))
        task_status.started()
        last_request_at = -math.inf
        while not self.found:
            await trio.sleep(RETRY_S)
            is_due = trio.current_time() - last_request_at >= SHORT_DEADLINE_S
            peer_id = await self._next_peer(is_due=is_due)
            if peer_id is not None:
                last_request_at = trio.current_time()
                with contextlib.suppress(NoAnswerError):
                    await self.ask(peer_id)

    def _on_connected(self, peer_id: PeerId) -> None:
        self._new_peers.put(peer_id, None)

    async def _next_peer(self, *, is_due: bool) -> PeerId | None:
        """Return the peer to ask now: a new one, or, if one `is_due` while this node publishes,
        any."""
        connected = self._host.connected_peers()
        usable = sorted(peer for peer in connected if self._asker.is_usable(peer))
        candidates = [peer for peer in usable if peer in self._new_peers]
        if not candidates and is_due and await self._is_publishing():
            candidates = usable
        if not candidates:
            return None
        peer_id = self._rng.choice(candidates)
        self._new_peers.pop(peer_id, None)
        return peer_id

    async def _is_publishing(self) -> bool:
        _, latest = await self._own.own_numbers()
        if latest != self._latest:
            self._latest, self._latest_at = latest, trio.current_time()
        return trio.current_time() - self._latest_at < MINUTE_S

    async def ask(self, peer_id: PeerId) -> None:
        """Ask one peer, and check the first batch that this node does not know.

        Raises:
            NoAnswerError: the peer does not answer.
        """
        if self.found:
            return
        forgotten, latest = await self._own.own_numbers()
        about_latest = max(forgotten, latest - _LOOK_BACK)
        for after in (about_latest,) if self._has_listed_all else (forgotten, about_latest):
            query = SinceQuery(publisher=self._me, after_sequence=after, max_batches=FEW)
            listing = await self._asker.ask(peer_id, query, Listing, is_vital=False)
            if (ref := await self._find_unknown(listing)) is not None:
                # A listing is not signed: only the batch itself is proof. One is enough.
                await self._prove(peer_id, ref, forgotten)
                break
        self._has_listed_all = True

    async def _find_unknown(self, listing: Listing) -> BatchRef | None:
        """Return a small listed batch that this node has not published, or None."""
        for ref in listing.batches[:FEW]:
            if ref.num_bytes <= WHOLE_MESSAGE_BYTES and not await self._own.is_own(ref.batch_id):
                return ref
        return None

    async def _prove(self, peer_id: PeerId, ref: BatchRef, forgotten: int) -> None:
        """Fetch and check a listed batch; charge the peer if this node's key did not sign it."""
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
    """Return a signed batch's number; infinity if this version cannot read it."""
    try:
        return decode_batch(payload, max_bytes=MAX_BATCH_BYTES).sequence
    except PayloadError:
        return math.inf

"""Restores buffer and ledger from disk, in small steps between other tasks.

    store ─▶ a few envelopes ─▶ opened in a thread ─▶ ledger ─▶ buffer, a few groups at a time

A full buffer is seconds of work. In one piece, pings of peers would miss their deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.intake.evidence import proves_equivocation
from shoal_p2p.intake.ledger import PublisherLedger
from shoal_p2p.intake.validation import Rejected
from shoal_p2p.rollouts.reopening import Reopener
from shoal_p2p.store.store import Store
from shoal_p2p.store.types import EvidencePair, StoredBatch
from shoal_wire import digests
from shoal_wire.types import Digest, PeerId, SignedBatch

log = logging.getLogger(__name__)

BATCHES_A_STEP = 16
"""Number of envelopes that are read from disk, and opened, at a time."""
IDS_A_STEP = 1024
"""Number of consumed ids restored before other tasks run."""

TakeBack = Callable[[SignedBatch, StoredBatch], Awaitable[None]]
"""Puts an opened batch into the buffer."""


class Restoring:
    """Fills buffer and ledger from disk; damaged rows are logged and skipped."""

    def __init__(
        self,
        *,
        store: Store,
        buffer: ReplayBuffer,
        ledger: PublisherLedger,
        reopener: Reopener,
        take_back: TakeBack,
        me: PeerId,
        swarm_digest: Digest,
    ) -> None:
        self._store = store
        self._buffer = buffer
        self._ledger = ledger
        self._reopener = reopener
        self._take_back = take_back
        self._me = me
        self._swarm_digest = swarm_digest

    async def run(self) -> None:
        """Restore everything."""
        state = await self._store.load()
        for start in range(0, len(state.consumed_ids), IDS_A_STEP):
            self._buffer.consume(state.consumed_ids[start : start + IDS_A_STEP])
            await trio.lowlevel.checkpoint()
        # Before the batches, since evidence excludes some of them.
        for pair in await self._store.evidence():
            await self._weigh(pair)
        for start in range(0, len(state.batch_ids), BATCHES_A_STEP):
            found = await self._store.batches(state.batch_ids[start : start + BATCHES_A_STEP])
            opened = await self._reopener.open([stored.envelope for stored in found])
            for signed, stored in zip(opened, found, strict=True):
                await self._restore(signed, stored)
        log.debug("restored %d batches", len(state.batch_ids))

    async def _restore(self, signed: SignedBatch | Rejected, stored: StoredBatch) -> None:
        if isinstance(signed, Rejected):
            log.warning("a stored batch is damaged (%s): skipped", signed.reason)
            return
        if signed.batch.swarm_digest != self._swarm_digest:
            return  # of a swarm that this node has left
        publisher, sequence = signed.publisher, signed.batch.sequence
        if self._ledger.is_equivocated(publisher, sequence):
            return
        if publisher != self._me:
            self._ledger.remember(publisher, sequence, signed.batch_id, trio.current_time())
        await self._take_back(signed, stored)

    async def _weigh(self, pair: EvidencePair) -> None:
        """Mark a sequence number as signed twice if the pair proves it; otherwise drop the pair."""
        is_proof = await self._reopener.in_thread(
            lambda: proves_equivocation(
                pair.publisher,
                pair.sequence,
                first=pair.first,
                first_id=pair.first_id,
                second=pair.second,
            )
        )
        if not is_proof:
            log.warning(
                "what was kept against %s does not show that it signed number %d twice: dropped",
                pair.publisher,
                pair.sequence,
            )
            await self._store.drop_evidence(pair.publisher, pair.sequence)
            return
        second_id = digests.batch_id(pair.second)
        self._ledger.mark_equivocated(pair.publisher, pair.sequence, second_id, trio.current_time())
        if pair.first is not None:
            await self._refuse_content(pair.publisher, pair.first)

    async def _refuse_content(self, publisher: PeerId, first: bytes) -> None:
        """Accept withdrawn content only from other publishers: this one could withdraw it again."""
        (signed,) = await self._reopener.open([first])
        if not isinstance(signed, Rejected):
            self._buffer.refuse(map(digests.group_id, signed.batch.groups), publisher)

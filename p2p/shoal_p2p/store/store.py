"""The node's memory on disk: the outbox, other nodes' batches and what was consumed.

    caller ─▶ request ─▶ bounded queue ─▶ run() ─▶ one transaction in a thread ─▶ caller goes on

Requests that queue up while a transaction runs share the next one (group commit), so a burst
costs one flush of the disk. A caller is released only after its commit. When the queue is full
callers wait: that is the back-pressure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import trio

from shoal_p2p.disk import Refused, say_refused
from shoal_p2p.store.statements import Committed, StoreCore, Undone
from shoal_p2p.store.types import (
    Bringer,
    EvidencePair,
    OwnBatch,
    StoredBatch,
    StoredState,
    StoreError,
    StoreFault,
    StoreLimits,
)
from shoal_p2p.threads import InThread
from shoal_wire.types import BatchId, GroupId, PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

__all__ = [
    "Bringer",
    "EvidencePair",
    "OwnBatch",
    "Store",
    "StoreCore",
    "StoreError",
    "StoreFault",
    "StoreLimits",
    "StoredBatch",
    "StoredState",
]

T = TypeVar("T")

QUEUE_REQUESTS = 256
GROUP_REQUESTS = 64
"""Requests that share a transaction, at most."""


@dataclass(slots=True, eq=False)
class _Submitted:
    call: Callable[[StoreCore], Any]
    durable: bool
    finished: trio.Event = field(default_factory=trio.Event)
    outcome: Committed | Undone | None = None

    def finish(self, outcome: Committed | Undone) -> None:
        self.outcome = outcome
        self.finished.set()


class Store:
    """The database for Trio tasks. Start `run` first; every call raises StoreError."""

    def __init__(
        self,
        path: Path,
        *,
        peer_id: PeerId,
        wall_ms: Callable[[], int],
        limits: StoreLimits | None = None,
        first_sequence: int = 1,
        in_thread: InThread = trio.to_thread.run_sync,
        refused: Refused = say_refused,
    ) -> None:
        """Open nothing yet; the arguments are `StoreCore`'s. `refused` hears of a full disk."""
        self._refused = refused
        self.in_thread = in_thread
        self._open = partial(
            StoreCore, path, peer_id=peer_id, limits=limits, first_sequence=first_sequence
        )
        self.wall_ms = wall_ms
        # Its own limiter: a busy default pool of threads must not hold up an acknowledgement.
        self._limiter = trio.CapacityLimiter(1)
        self._send, self._receive = trio.open_memory_channel[_Submitted](QUEUE_REQUESTS)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the database, then commit requests until cancelled; StoreError if unusable."""
        try:
            core = await self.in_thread(self._open, limiter=self._limiter)
            try:
                task_status.started()
                await self._serve(core)
            finally:
                with trio.CancelScope(shield=True):
                    await self.in_thread(core.close, limiter=self._limiter)
        finally:
            self._refuse_waiting()

    async def _serve(self, core: StoreCore) -> None:
        async for first in self._receive:
            requests = [first]
            while len(requests) < GROUP_REQUESTS:
                try:
                    requests.append(self._receive.receive_nowait())
                except (trio.WouldBlock, trio.EndOfChannel):
                    break
            await self._commit(core, requests)

    async def _commit(self, core: StoreCore, requests: list[_Submitted]) -> None:
        commit = partial(
            core.commit,
            [request.call for request in requests],
            durable=any(request.durable for request in requests),
        )
        try:
            # Not abandoned when cancelled: a commit that has begun ends, and its callers learn.
            outcomes = await self.in_thread(commit, limiter=self._limiter)
            for outcome in outcomes:
                if isinstance(outcome, Undone) and _is_full(outcome.error):
                    self._refused("a batch or what became of it", outcome.error)
            for request, outcome in zip(requests, outcomes, strict=True):
                request.finish(outcome)
        finally:
            for request in requests:
                if request.outcome is None:
                    request.finish(Undone(_closed()))

    def _refuse_waiting(self) -> None:
        waiting = []
        while True:
            try:
                waiting.append(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                break
        self._receive.close()
        for request in waiting:
            request.finish(Undone(_closed()))

    async def _submit(self, call: Callable[[StoreCore], T], *, durable: bool = False) -> T:
        request = _Submitted(call=call, durable=durable)
        try:
            await self._send.send(request)
        except trio.BrokenResourceError:
            raise _closed() from None
        await request.finished.wait()
        outcome = request.outcome
        if isinstance(outcome, Undone):
            raise outcome.error
        assert outcome is not None
        value: T = outcome.value
        return value

    async def reserve_own(
        self, client_key: bytes, make_envelope: Callable[[int, int], bytes]
    ) -> OwnBatch:
        """Allot the next sequence, seal a batch with it and return once that is on disk.

        `make_envelope` gets the sequence and that of the own batch before (0: none), runs in the
        writer's thread, may be called again with others and must have no side effects. The same
        key again returns the first batch with `is_new` False. Raises StoreError: FULL and
        OUTBOX_FULL may pass.
        """
        now_ms = self.wall_ms()
        return await self._submit(
            lambda core: core.reserve_own(client_key, make_envelope, now_ms=now_ms), durable=True
        )

    async def mark_sent(self, sequence: int) -> bool:
        """Note that an own batch has gone out or never will; False if unknown or noted before.

        Lost by a power cut at worst: then it is sent once more, and peers ignore it.
        """
        now_ms = self.wall_ms()
        return await self._submit(lambda core: core.mark_sent(sequence, now_ms=now_ms))

    async def unsent(self) -> list[OwnBatch]:
        """Return own batches that have not gone out, oldest first."""
        return await self._submit(StoreCore.unsent)

    async def last_sent_ms(self) -> int:
        """Return when the latest own batch went out, by the wall clock; 0 if none has."""
        return await self._submit(StoreCore.last_sent_ms)

    async def envelope_part(self, batch_id: BatchId, offset: int, length: int) -> bytes | None:
        """Return up to `length` bytes of a stored envelope; None if it is not here."""
        return await self._submit(lambda core: core.envelope_part(batch_id, offset, length))

    async def is_own(self, batch_id: BatchId) -> bool:
        """Return whether this node published the batch, also when its bytes have gone."""
        return await self._submit(lambda core: core.is_own(batch_id))

    async def own_numbers(self) -> tuple[int, int]:
        """Return the highest number below which own batches may be forgotten, 0 if none are, and
        the latest own batch's number, 0 if there is none."""
        return await self._submit(lambda core: (core.forgotten_up_to(), core.last_own_sequence()))

    async def add_external(
        self,
        batch_id: BatchId,
        publisher: PeerId,
        sequence: int,
        envelope: bytes,
        received_ms: int,
        bringer: Bringer | None = None,
    ) -> bool:
        """Store a valid batch of another node; False if it was here."""
        return await self._submit(
            lambda core: core.add_external(
                batch_id, publisher, sequence, envelope, received_ms, bringer
            )
        )

    async def consume(self, group_ids: Collection[GroupId], at_ms: int) -> int:
        """Remember that groups were trained on, on disk on return; count those not known yet."""
        ids = tuple(group_ids)
        return await self._submit(lambda core: core.consume(ids, at_ms=at_ms), durable=True)

    async def add_equivocation(
        self, publisher: PeerId, sequence: int, first: BatchId, second_envelope: bytes
    ) -> None:
        """Keep two batches under one sequence as evidence, and the first no longer as a batch."""
        now_ms = self.wall_ms()
        await self._submit(
            lambda core: core.add_equivocation(
                publisher, sequence, first, second_envelope, now_ms=now_ms
            )
        )

    async def evidence(self) -> list[EvidencePair]:
        """Return the pairs kept as proof of equivocation, oldest first."""
        return await self._submit(StoreCore.evidence)

    async def drop_evidence(self, publisher: PeerId, sequence: int) -> None:
        """Forget a pair that proves nothing."""
        await self._submit(lambda core: core.drop_evidence(publisher, sequence))

    async def load(self) -> StoredState:
        """Return what a node resumes from."""
        return await self._submit(StoreCore.load)

    async def batches(self, batch_ids: Sequence[BatchId]) -> list[StoredBatch]:
        """Return batches by their ids, in that order, without those that are not here."""
        ids = tuple(batch_ids)
        return await self._submit(lambda core: core.batches(ids))

    async def prune(
        self,
        *,
        max_age_ms: int,
        max_bytes: int,
        keep: Collection[BatchId] | None = None,
        grace_ms: int = 60_000,
    ) -> int:
        """Delete batches that nobody needs, as `StoreCore.prune` says; return how many."""
        now_ms = self.wall_ms()
        kept = None if keep is None else frozenset(keep)
        return await self._submit(
            lambda core: core.prune(
                now_ms=now_ms,
                max_age_ms=max_age_ms,
                max_bytes=max_bytes,
                keep=kept,
                grace_ms=grace_ms,
            )
        )


def _is_full(error: BaseException) -> TypeGuard[StoreError]:
    return isinstance(error, StoreError) and error.fault is StoreFault.FULL


def _closed() -> StoreError:
    return StoreError(StoreFault.CLOSED, "the store has been stopped")

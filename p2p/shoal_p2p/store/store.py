"""The node's memory on disk: the outbox, other nodes' batches and what was consumed.

    caller ─▶ request ─▶ bounded queue ─▶ run() ─▶ one transaction in a thread ─▶ caller goes on

Requests that queue up while a transaction runs share the next one (group commit), so a burst
costs one flush of the disk. A caller is released only after its commit. When the queue is full
callers wait: that is the back-pressure.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeGuard, TypeVar

import trio

from shoal_p2p.disk import Refused, say_refused
from shoal_p2p.store.statements import Committed, StoreCore, Undone
from shoal_p2p.store.types import (
    Bringer,
    OwnBatch,
    StoredBatch,
    StoredState,
    StoreError,
    StoreFault,
    StoreLimits,
)
from shoal_p2p.threads import InThread
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

__all__ = [
    "Bringer",
    "OwnBatch",
    "Store",
    "StoreCore",
    "StoreError",
    "StoreFault",
    "StoreLimits",
    "StoredBatch",
    "StoredState",
]

P = ParamSpec("P")
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


def _queued(
    call: Callable[Concatenate[StoreCore, P], T], *, durable: bool = False
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Return a statement as a method of `Store`, which returns once its transaction is over."""

    @wraps(call)
    async def queued(store: Store, /, *args: P.args, **options: P.kwargs) -> T:
        return await store._submit(lambda core: call(core, *args, **options), durable=durable)

    return queued


class Store:
    """The database for Trio tasks. Start `run` first; every call raises StoreError.

    Its calls are the statements of `StoreCore`, each by its name.
    """

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
            now_ms=self.wall_ms(),
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

    # Durable: on disk when they return. The rest is lost by a power cut at worst.
    reserve_own = _queued(StoreCore.reserve_own, durable=True)
    consume = _queued(StoreCore.consume, durable=True)
    mark_sent = _queued(StoreCore.mark_sent)
    unsent = _queued(StoreCore.unsent)
    envelope_part = _queued(StoreCore.envelope_part)
    is_own = _queued(StoreCore.is_own)
    own_numbers = _queued(StoreCore.own_numbers)
    add_external = _queued(StoreCore.add_external)
    withdraw = _queued(StoreCore.withdraw)
    load = _queued(StoreCore.load)
    batches = _queued(StoreCore.batches)
    prune = _queued(StoreCore.prune)


def _is_full(error: BaseException) -> TypeGuard[StoreError]:
    return isinstance(error, StoreError) and error.fault is StoreFault.FULL


def _closed() -> StoreError:
    return StoreError(StoreFault.CLOSED, "the store has been stopped")

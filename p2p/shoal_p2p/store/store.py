"""The node's database: the outbox, external batches, and consumed groups.

    caller ─▶ one transaction at a time, in a thread ─▶ caller continues

A call returns after its commit. Callers wait for each other, which gives back-pressure. External
batches arrive together and are committed together (`add_all`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import trio

from shoal_p2p.disk import Refused, say_refused
from shoal_p2p.store.statements import StoreCore
from shoal_p2p.store.types import (
    Deliverer,
    EvidencePair,
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
    "Deliverer",
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

P = ParamSpec("P")
T = TypeVar("T")


def _queued(
    call: Callable[Concatenate[StoreCore, P], T], *, durable: bool = False
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Return a statement as an async method of `Store`, which returns after its commit."""

    @wraps(call)
    async def queued(store: Store, /, *args: P.args, **options: P.kwargs) -> T:
        return await store._submit(lambda core: call(core, *args, **options), durable=durable)

    return queued


class Store:
    """The database for Trio tasks. Start `run` first; every call may raise StoreError.

    The methods are the statements of `StoreCore` under the same names.
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
        """See `StoreCore` for the arguments. Opens no file yet. `refused` is called for a full
        disk."""
        self._refused = refused
        self.in_thread = in_thread
        self._open = partial(
            StoreCore, path, peer_id=peer_id, limits=limits, first_sequence=first_sequence
        )
        self.wall_ms = wall_ms
        # Its own limiter: a busy default thread pool must not delay an acknowledgement.
        self._limiter = trio.CapacityLimiter(1)
        self._core: StoreCore | None = None

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the database, then commit requests until cancelled; StoreError if unusable."""
        core = self._core = await self.in_thread(self._open, limiter=self._limiter)
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            self._core = None  # waiting calls are refused
            with trio.CancelScope(shield=True):
                await self.in_thread(core.close, limiter=self._limiter)

    async def _submit(self, call: Callable[[StoreCore], T], *, durable: bool = False) -> T:
        def commit() -> T:
            if self._core is None:
                raise StoreError(StoreFault.CLOSED, "the store has been stopped")
            return self._core.commit(call, now_ms=self.wall_ms(), durable=durable)

        try:
            # Not abandoned on cancellation: a commit that has begun is completed.
            return await self.in_thread(commit, limiter=self._limiter)
        except StoreError as error:
            if error.fault is StoreFault.FULL:
                self._refused("a batch or its state", error)
            if error.fault is StoreFault.CLOSED:
                # A caller that is cancelled together with the store gets Cancelled, not CLOSED.
                await trio.lowlevel.checkpoint_if_cancelled()
            raise

    # Durable calls are on disk when they return. A power failure may lose the others.
    reserve_own = _queued(StoreCore.reserve_own, durable=True)
    consume = _queued(StoreCore.consume, durable=True)
    mark_sent = _queued(StoreCore.mark_sent)
    unsent = _queued(StoreCore.unsent)
    envelope_part = _queued(StoreCore.envelope_part)
    is_own = _queued(StoreCore.is_own)
    own_numbers = _queued(StoreCore.own_numbers)
    add_all = _queued(StoreCore.add_all)
    add_equivocation = _queued(StoreCore.add_equivocation)
    evidence = _queued(StoreCore.evidence)
    drop_evidence = _queued(StoreCore.drop_evidence)
    load = _queued(StoreCore.load)
    batches = _queued(StoreCore.batches)
    prune = _queued(StoreCore.prune)

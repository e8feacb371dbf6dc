"""The node's store with its real SQL, but without threads and without waiting for the disk.

async with open_store(folder / "node.db") as store:
    await store.load()
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from shoal_lab.simulation.parts import UnflushedStore, at_once
from shoal_p2p.peers.outside import wall_ms as real_wall_ms
from shoal_p2p.store.store import Store
from shoal_p2p.store.types import StoreError, StoreFault, StoreLimits
from shoal_wire.types import PeerId
from tests.support.doubles.identities import fresh_identity


async def full_disk(*_: object) -> None:
    """Raise as a store does on a full disk; use it in place of one of its methods."""
    raise StoreError(StoreFault.FULL, "disk full")


@asynccontextmanager
async def open_store(
    path: Path,
    *,
    peer_id: PeerId | None = None,
    wall_ms: Callable[[], int] = real_wall_ms,
    limits: StoreLimits | None = None,
    first_sequence: int = 1,
) -> AsyncIterator[Store]:
    """Run a store over the file at `path`; leaving the context is as sudden as a kill."""
    store = UnflushedStore(
        path,
        peer_id=peer_id or fresh_identity().peer_id,
        wall_ms=wall_ms,
        limits=limits,
        first_sequence=first_sequence,
        in_thread=at_once,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()

"""A process that reserves and consumes through a store until it is killed.

    python -m tests.p2p.store.reserver DATABASE RUN

Prints a line for each acknowledgement, after it: `batch KEY SEQUENCE BATCH_ID` and
`consumed GROUP_ID`.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

import trio

from shoal_p2p.store.store import Store
from shoal_wire.types import GroupId, PeerId

RESERVERS = 6


async def main(path: Path, run: str) -> None:
    """Reserve from several tasks at once."""
    store = Store(path, peer_id=PeerId("me"), wall_ms=lambda: 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for number in range(RESERVERS):
            nursery.start_soon(_reserve, store, f"{run}-{number}")


async def _reserve(store: Store, prefix: str) -> None:
    for number in count():
        key = f"{prefix}-{number}"
        own = await store.reserve_own(
            key.encode(), lambda n, _p, key=key: f"{n} {key}".encode() * 50
        )
        print("batch", key, own.sequence, own.batch_id.hex(), flush=True)
        group_id = GroupId(own.batch_id[:16])
        await store.consume([group_id])
        print("consumed", group_id.hex(), flush=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), sys.argv[2])

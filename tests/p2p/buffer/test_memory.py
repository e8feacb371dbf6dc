"""What leaves the buffer leaves memory."""

from __future__ import annotations

import gc
import random
import sys
import weakref
from dataclasses import replace

from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.buffer.types import BufferEntry
from shoal_wire.types import PeerId
from tests.p2p.buffer.entries import entry, group_id, limits


class Tracked(str):
    """A text whose end can be seen."""


def tracked(number: int, publisher: str) -> tuple[BufferEntry, weakref.ref[Tracked]]:
    name = Tracked(f"model {number}")
    item = entry(number, publisher)
    policy = replace(item.group.policy, model_name=name)
    return replace(item, group=replace(item.group, policy=policy)), weakref.ref(name)


def test_what_leaves_the_buffer_leaves_memory() -> None:
    buffer = ReplayBuffer(limits(max_groups=50), random.Random(1))
    texts = []
    for number in range(200):
        item, text = tracked(number, f"p{number % 3}")
        texts.append(text)
        buffer.insert(item, 0.0)
        del item
    gc.collect()
    assert sum(text() is not None for text in texts) == 50
    leased = buffer.lease(30, holder="t", now=0.0, lease_seconds=9.0)
    buffer.consume([one.group.group_id for one in leased])
    del leased
    gc.collect()
    assert sum(text() is not None for text in texts) == 20
    for publisher in ("p0", "p1", "p2"):
        buffer.discard([group_id(number) for number in range(200)], PeerId(publisher))
    gc.collect()
    assert sum(text() is not None for text in texts) == 0


def test_a_stream_of_publishers_leaves_a_bounded_trace() -> None:
    buffer = ReplayBuffer(
        limits(max_groups=10_000, max_publishers=20, max_consumed_ids=30),
        random.Random(1),
    )
    before = _bytes_of(buffer)
    for number in range(3000):
        buffer.insert(entry(number, f"p{number}"), 0.0)
        buffer.consume([group_id(number)])
    assert _bytes_of(buffer) - before < 100_000


def _bytes_of(buffer: ReplayBuffer) -> int:
    """Return the size of everything reachable from the buffer, code apart."""
    total = 0
    seen: set[int] = set()
    waiting: list[object] = [buffer]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type) or callable(thing):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        waiting += gc.get_referents(thing)
    return total

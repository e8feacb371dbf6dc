"""The measurement includes every object that a node refers to."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from shoal_base.bounded import BoundedDict
from shoal_p2p.fair.buckets import KeyedBuckets, Rate
from tests.redteam.sizes import measure_containers


@dataclass(slots=True)
class Slotted:
    """A stand-in for one of the node's classes."""

    rows: dict[bytes, object] = field(default_factory=dict)


Slotted.__module__ = "shoal_p2p.test"


def test_containers_are_found_in_attributes_slots_closures_and_each_other() -> None:
    hidden: list[bytes] = [bytes(1000) for _ in range(50)]
    bounded = BoundedDict[bytes, deque[bytes]](10)
    bounded[b"a"] = deque([bytes(5000)])
    one = Slotted(rows={b"call": lambda: hidden, b"bounded": bounded})
    held = measure_containers({"node": one})
    assert sum(place.entries for place in held.values()) >= 50 + 2 + 1 + 1
    assert sum(place.num_bytes for place in held.values()) > 50 * 1000 + 5000


def test_what_is_held_twice_counts_once() -> None:
    text = bytes(10_000)
    held = measure_containers({"one": [text], "two": [text, text]})
    assert 10_000 < sum(place.num_bytes for place in held.values()) < 11_000


def test_the_node_s_own_classes_are_walked() -> None:
    buckets: KeyedBuckets[str] = KeyedBuckets(Rate(burst=1, per_second=1))
    for name in map(str, range(20)):
        buckets.get(name, 0.0)
    assert sum(place.entries for place in measure_containers({"node": buckets}).values()) >= 20

"""The ring behind `shoal debug rollouts`."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.events import GroupVerified
from shoal_p2p.rollouts.groups import published_groups
from shoal_p2p.rollouts.recent import MAX_BYTES, RecentRollouts
from shoal_wire.types import GroupId
from tests.support import factories as make


def groups(author: make.Author, count: int) -> list:
    return list(published_groups(author.sign(*range(count))))


def test_following_shows_each_group_once_and_the_newest_when_there_are_too_many() -> None:
    ring, ann, bob = RecentRollouts(), make.Author(), make.Author()
    for group in groups(ann, 3):
        ring.add(group)
    assert [recent.number for recent in ring.after(0, limit=2)] == [2, 3]
    for group in groups(bob, 5)[3:]:
        ring.add(group)
    assert [recent.number for recent in ring.after(3, limit=10)] == [4, 5]
    assert [r.number for r in ring.after(0, limit=10, publisher=bob.peer_id)] == [4, 5]
    assert ring.after(5, limit=10) == []
    assert ring.after(0, limit=0) == []


def test_rewards_come_with_the_group_whenever_they_are_known() -> None:
    ring, ann = RecentRollouts(), make.Author()
    first, second = groups(ann, 2)
    ring.add(first)
    ring.add(second)
    for group_id in (second.group_id, GroupId(b"unknown".ljust(16))):
        ring.on_event(GroupVerified(group_id=group_id, rewards=(0.0, 1.0)))
    assert [recent.rewards for recent in ring.after(0, limit=10)] == [None, (0.0, 1.0)]


def test_it_holds_no_more_bytes_than_its_bound_whatever_the_groups_weigh() -> None:
    """Megabytes of text that were a few hundred bytes on the wire."""
    ring, ann = RecentRollouts(), make.Author()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(80):
            texts = [f"{number} {n} 🐟" + 30_000 * "x" for n in range(16)]
            for group in published_groups(ann.sign(make.group(number, texts=texts))):
                ring.add(group)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert ring.num_bytes <= MAX_BYTES
    assert grown < 2 * MAX_BYTES
    (newest,) = ring.after(0, limit=1)
    assert all(c.text.endswith("x…") for c in newest.group.group.completions)


@settings(max_examples=25)
@given(
    sizes=st.lists(
        st.tuples(st.integers(0, 6), st.integers(1, 64), st.integers(0, 32_000), st.booleans()),
        max_size=30,
    )
)
def test_no_groups_push_it_over_its_bound(sizes: list[tuple[int, int, int, bool]]) -> None:
    ring, ann = RecentRollouts(capacity=5), make.Author()
    for number, count, length, wide in sizes:
        text = ("🐟" if wide else "") + length * "x"
        for group in published_groups(ann.sign(make.group(number, texts=[text or "x"] * count))):
            ring.add(group)
        held = ring.after(0, limit=99)
        assert len(held) <= 5
        assert ring.num_bytes == sum(recent.num_bytes for recent in held) <= MAX_BYTES
        assert max((recent.num_bytes for recent in held), default=0) < 64 * 1024

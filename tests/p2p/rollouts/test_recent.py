"""The ring behind `shoal debug rollouts`."""

from __future__ import annotations

from p2p.rollouts.groups import published_groups
from p2p.rollouts.recent import RecentRollouts
from tests.support import factories as make


def groups(author: make.Author, count: int) -> list:  # type: ignore[type-arg]
    signed = author.signed(author.batch([make.group(number) for number in range(count)]))
    return list(published_groups(signed))


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
    ring.verified(second.group_id, [0.0, 1.0])
    ring.verified(b"unknown".ljust(16), [1.0])  # type: ignore[arg-type]
    assert [recent.rewards for recent in ring.after(0, limit=10)] == [None, (0.0, 1.0)]


def test_it_holds_only_the_latest() -> None:
    ring, ann = RecentRollouts(capacity=3), make.Author()
    made = groups(ann, 5)
    for group in made:
        ring.add(group)
    assert [recent.number for recent in ring.after(0, limit=10)] == [3, 4, 5]
    ring.verified(made[0].group_id, [1.0])
    assert [recent.rewards for recent in ring.after(0, limit=10)] == [None] * 3

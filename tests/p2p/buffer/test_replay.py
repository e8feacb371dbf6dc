"""The replay buffer, rule by rule. `test_stateful.py` runs random sequences."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.buffer.types import InsertOutcome
from shoal_wire.types import GroupId, PeerId
from tests.p2p.buffer.entries import OWN_PEER, entry, group_id, ids_of, limits, only
from tests.support.factories import GCD


def make(**changes: float) -> ReplayBuffer:
    return ReplayBuffer(limits(**changes), random.Random(1))


def fill(buffer: ReplayBuffer, publisher: str, numbers: range, **kwargs: float) -> None:
    for number in numbers:
        outcome = buffer.insert(
            entry(number, publisher, received_at=float(number), **kwargs),  # type: ignore[arg-type]
            float(number),
        )
        assert outcome is InsertOutcome.STORED


def lease(buffer: ReplayBuffer, count: int, now: float = 0.0, **kwargs: object) -> list[GroupId]:
    options = {"holder": "trainer", "lease_seconds": 60.0, **kwargs}
    return ids_of(buffer.lease(count, now=now, **options))  # type: ignore[arg-type]


def share_of(publisher: str, buffer: ReplayBuffer, draws: int, **weights: float) -> float:
    """Draw groups one at a time; return how often they were a publisher's."""
    hits = 0
    for _ in range(draws):
        (one,) = buffer.lease(1, holder="t", now=16.0, lease_seconds=9.0, weight_of=only(**weights))
        hits += one.group.publisher == publisher
        buffer.release_holder("t")
    return hits / draws


def resident(buffer: ReplayBuffer) -> set[GroupId]:
    return {item.group.group_id for item in buffer.external_groups()}


def test_a_group_without_size_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="bytes"):
        make().insert(entry(1, num_bytes=0), 0.0)


def test_limits_must_be_positive() -> None:
    with pytest.raises(ValueError, match="max_age_seconds"):
        limits(max_age_seconds=0)


@pytest.mark.parametrize(
    ("weight", "share"),
    [
        (1.0, 1 / 2),
        (0.25, 1 / 5),
        # So unlikely that the exact draw over all publishers has to step in.
        (0.0005, 1 / 2001),
    ],
)
def test_a_publishers_share_follows_its_weight_not_its_number_of_groups(
    weight: float, share: float
) -> None:
    buffer = make()
    fill(buffer, "few", range(4))
    fill(buffer, "many", range(4, 16))
    # Four standard deviations of 4,000 draws.
    within = 4 * 0.5 / 4000**0.5
    assert share_of("many", buffer, 4000, many=weight) == pytest.approx(share, abs=within)


def test_equally_poor_publishers_are_drawn_in_proportion() -> None:
    buffer = make()
    fill(buffer, "a", range(2))
    fill(buffer, "b", range(2, 4))
    assert share_of("b", buffer, 1000, a=1e-6, b=3e-6) == pytest.approx(0.75, abs=0.055)


def test_no_text_of_own_groups_is_kept() -> None:
    buffer = make()
    buffer.record_own(entry(1, OWN_PEER), 0.0)
    assert resident(buffer) == set()
    assert buffer.get(group_id(1)) is None
    remembered = buffer.get_own(group_id(1))
    assert remembered is not None
    group = remembered.group
    assert (group.publisher, group.group.task.family) == (OWN_PEER, GCD.name)
    assert group.group.completions == ()


def test_the_memory_of_consumed_ids_is_bounded_and_forgets_the_oldest() -> None:
    buffer = make(max_consumed_ids=3)
    buffer.consume(group_id(number) for number in range(4))
    assert buffer.insert(entry(0), 0.0) is InsertOutcome.STORED
    assert buffer.insert(entry(1), 0.0) is InsertOutcome.CONSUMED_BEFORE


def test_leases_on_groups_that_are_not_here_are_bounded() -> None:
    buffer = make(max_consumed_ids=4)
    buffer.hold((group_id(number) for number in range(100)), "after", 0.0, 60.0)
    assert buffer.insert(entry(3), 0.0) is InsertOutcome.DUPLICATE
    assert buffer.insert(entry(4), 0.0) is InsertOutcome.STORED


def test_statistics_by_publisher() -> None:
    buffer = make()
    fill(buffer, "a", range(3))
    fill(buffer, "b", range(3, 4))
    buffer.record_own(entry(4, OWN_PEER, received_at=4.0), 4.0)
    lease(buffer, 1, now=5.0, weight_of=only(a=0.0))
    stats = buffer.stats(5.0)
    by_peer = {item.peer_id: item for item in stats.publishers}
    assert set(by_peer) == {"a", "b", OWN_PEER}
    a, b = by_peer[PeerId("a")], by_peer[PeerId("b")]
    assert (a.groups, a.bytes, a.oldest_s, a.newest_s, a.sampled) == (3, 30, 5.0, 3.0, 0)
    assert (b.groups, b.oldest_s, b.sampled, b.received) == (1, None, 1, 1)
    assert (stats.groups, stats.bytes, stats.local_bytes, stats.leased) == (4, 40, 10, 1)
    assert buffer.ready() == 3
    mine = by_peer[OWN_PEER]
    assert (mine.is_local, mine.groups, mine.bytes, mine.received) == (True, 1, 10, 1)
    assert (mine.oldest_s, mine.newest_s) == (1.0, 1.0)
    assert [item.peer_id for item in buffer.stats(5.0, max_publishers=1).publishers] == ["a"]


def test_a_publishers_counters_outlive_its_groups_within_a_bound() -> None:
    buffer = make(max_publishers=2)
    for number, publisher in enumerate("abcc"):
        fill(buffer, publisher, range(number, number + 1))
        buffer.discard([group_id(number)], PeerId(publisher))
    fill(buffer, "b", range(4, 5))
    counted = {peer: one.stored_total for peer, one in buffer.counters().items()}
    assert counted == {"c": 2, "b": 2}


@pytest.mark.parametrize("how", ["withdrawn", "displaced"])
def test_what_left_by_its_publishers_doing_is_taken_from_others_only(how: str) -> None:
    buffer = make(max_groups_per_publisher=1)
    buffer.insert(entry(1, "copier"), 0.0)
    assert buffer.insert(entry(1, "author"), 0.0) is InsertOutcome.DUPLICATE
    match how:
        case "withdrawn":
            buffer.discard([group_id(1)], PeerId("copier"))
        case "displaced":
            buffer.insert(entry(2, "copier"), 0.0)
    assert buffer.insert(entry(1, "copier"), 0.0) is InsertOutcome.DUPLICATE
    assert buffer.insert(entry(1, "author"), 0.0) is InsertOutcome.STORED


def test_capacity_counts_free_slots_and_groups_older_than_a_time() -> None:
    buffer = make(max_groups=8)
    fill(buffer, "a", range(6))
    assert [buffer.room(since=float(at)) for at in (-1, 0, 2, 6)] == [2, 2, 4, 8]


def test_a_flooder_displaces_only_itself() -> None:
    buffer = make(max_groups=8)
    for number in range(4):
        fill(buffer, f"quiet{number}", range(number, number + 1))
    fill(buffer, "flooder", range(10, 500))
    assert resident(buffer) == {group_id(number) for number in (0, 1, 2, 3, *range(496, 500))}


@pytest.mark.parametrize("ticks", [600, pytest.param(1250, marks=pytest.mark.slow)])
def test_a_flooder_gets_no_more_than_a_publishers_share(ticks: int) -> None:
    buffer = make(max_groups=1024, max_groups_per_publisher=512)
    number = 0
    drawn = Counter[str]()
    for tick in range(ticks):
        for publisher in [f"honest{i}" for i in range(20)] + ["attacker"] * 30:
            buffer.insert(entry(number, publisher, received_at=float(tick)), float(tick))
            number += 1
        batch = lease(buffer, 16, now=float(tick))
        for group in batch:
            leased = buffer.get(group)
            assert leased is not None
            drawn[leased.group.publisher] += 1
        buffer.consume(batch)
    # A fair share is 1 / 21 = 4.76 %, of standard deviation 0.15 % in 20,000 draws, 0.22 in 9,600.
    assert drawn.total() == ticks * 16
    assert drawn["attacker"] / drawn.total() <= 0.05

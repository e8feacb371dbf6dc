"""Names buy nothing: room and draws go by network, then by connection, and by name last."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.buffer.pool import source_of
from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.buffer.types import BufferEntry, InsertOutcome
from shoal_wire.types import PeerId
from tests.p2p.buffer.entries import entry, limits

ROOM = 200
HONEST = tuple(PeerId(f"honest{number}") for number in range(4))


class Course:
    """A buffer, with honest publishers that each came by a network of its own."""

    def __init__(self, *, seed: int = 1, room: int = ROOM) -> None:
        self.buffer = ReplayBuffer(
            limits(max_groups=room, max_groups_per_publisher=room, max_age_seconds=1e9),
            random.Random(seed),
        )
        self.number = 0

    def bring(
        self, publisher: str, network: str, *, connection: str = "", signed: bool = False
    ) -> InsertOutcome:
        self.number += 1
        item: BufferEntry = replace(
            entry(self.number, publisher, received_at=float(self.number)),
            network=network,
            connection=connection or network,
            by_publisher=signed,
        )
        return self.buffer.insert(item, float(self.number))

    def honest(self, count: int) -> None:
        for number in range(count):
            name = HONEST[number % len(HONEST)]
            assert self.bring(name, f"of {name}", signed=True) is InsertOutcome.STORED

    def fresh(self, count: int, *, networks: int = 1, signed: bool = False) -> None:
        """Let that many fresh names bring a group each, by some networks."""
        for number in range(count):
            self.bring(f"fresh{self.number}", f"bad{number % networks}", signed=signed)

    def held(self) -> Counter[str]:
        kinds = (_kind(item) for item in self.buffer.residents())
        return Counter(kinds)

    def draw(self, count: int, weights: dict[str, float] | None = None) -> Counter[str]:
        """Draw; `weights` are by kind or by source, 1 where nothing is named."""
        known = weights or {}
        items = self.buffer.lease(
            count,
            holder="t",
            now=float(self.number),
            lease_seconds=1e6,
            weight_of=lambda name, source: known.get(
                source, known.get(name.rstrip("0123456789"), 1.0)
            ),
        )
        self.buffer.consume([item.group.group_id for item in items])
        return Counter(map(_kind, items))


def _kind(item: BufferEntry) -> str:
    return item.group.publisher.rstrip("0123456789")


def test_a_thousand_names_of_one_connection_get_the_room_of_one_network() -> None:
    course = Course()
    course.honest(ROOM)
    course.fresh(1500)
    assert course.held() == {"honest": 160, "fresh": 40}


def test_a_thousand_names_of_one_connection_are_drawn_as_one_network_is() -> None:
    course = Course()
    drawn = Counter[str]()
    for _ in range(250):
        course.honest(4)
        course.fresh(8)
        drawn += course.draw(4)
    # A fifth; of 1,000 draws that is 200, with a standard deviation of 13.
    assert 150 < drawn["fresh"] < 250


def test_connections_buy_nothing_beside_others_of_their_network() -> None:
    course = Course()
    for number in range(900):
        course.bring(f"fresh{number}", "shared", connection=f"c{number % 30}")
        course.bring("modest", "its own", signed=True)
    assert course.held() == {"modest": 100, "fresh": 100}
    drawn = course.draw(100)
    # A half each; the standard deviation is 5.
    assert 30 < drawn["modest"] < 70


def test_within_a_network_each_connection_has_its_part() -> None:
    course = Course()
    for number in range(900):
        course.bring(f"fresh{number}", "shared", connection="flood")
        if number < 90:
            course.bring("modest", "shared", connection="modest's")
    assert course.held()["modest"] == 90
    drawn = course.draw(100)
    assert 30 < drawn["modest"] < 70


def test_what_a_connection_passes_on_does_not_displace_what_its_peer_signed() -> None:
    course = Course()
    for _ in range(100):
        course.bring("modest", "shared", signed=True)
    for number in range(1500):
        course.bring(f"fresh{number}", "shared")
    assert course.held() == {"modest": 100, "fresh": 100}


def test_a_newcomer_with_a_network_of_its_own_gets_in_and_is_drawn() -> None:
    course = Course()
    course.honest(ROOM)
    course.fresh(1500)
    for _ in range(10):
        assert course.bring("newcomer", "its own", signed=True) is InsertOutcome.STORED
    assert course.held()["newcomer"] == 10
    drawn = Counter[str]()
    for _ in range(40):
        drawn += course.draw(4)
        course.honest(4)
    assert drawn["newcomer"] == 10, "all of it, beside a hundred times as many names"


def test_room_that_nobody_wants_is_lent_and_given_back() -> None:
    course = Course()
    course.fresh(ROOM)
    assert course.held() == {"fresh": ROOM}
    course.honest(ROOM)
    assert course.held() == {"honest": 160, "fresh": 40}


def test_weights_scale_a_share_by_name_or_by_source() -> None:
    for known in ({"fresh": 0.01}, {"bad0": 0.01}):
        course = Course(seed=7)
        drawn = Counter[str]()
        for _ in range(250):
            course.honest(4)
            course.fresh(8, signed=True)
            drawn += course.draw(4, known)
        # Of 1,000 draws a hundredth of a fifth; nothing of it is what honest ones bring.
        assert drawn["fresh"] < 15
    assert course.draw(50, {"honest": 0.0, "fresh": 0.0}) == {}
    assert course.draw(50, {"honest": 0.0, "fresh": float("nan")}) == {}
    assert set(course.draw(10, {"honest": 0.0, "fresh": 1e-9})) == {"fresh"}, "however little"


def test_liars_behind_an_honest_peer_cost_nobody_else_that_is_heard_through_it() -> None:
    item = replace(entry(1, "a"), network="n", by_publisher=True)
    assert source_of(item) == "n"
    assert source_of(replace(item, by_publisher=False)) == ""


@settings(max_examples=20)
@given(
    seed=st.integers(0, 1 << 16),
    num_bad=st.integers(1, 6),
    steps=st.lists(
        st.tuples(st.sampled_from(["honest", "fresh", "draw"]), st.integers(1, 150)),
        min_size=1,
        max_size=20,
    ),
)
def test_whatever_names_are_brought_each_network_keeps_its_part(
    seed: int, num_bad: int, steps: list[tuple[str, int]]
) -> None:
    course = Course(seed=seed)
    course.honest(ROOM)
    part = ROOM // (len(HONEST) + num_bad)
    for kind, count in steps:
        before = Counter(item.group.publisher for item in course.buffer.residents())
        if kind == "honest":
            course.honest(count)
        elif kind == "fresh":
            course.fresh(count, networks=num_bad)
        else:
            assert sum(course.draw(count).values()) == min(count, before.total())
            continue
        after = Counter(item.group.publisher for item in course.buffer.residents())
        assert all(after[name] >= min(part, before[name]) for name in HONEST)
        assert after.total() <= ROOM

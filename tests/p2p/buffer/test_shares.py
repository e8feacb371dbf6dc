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


class BufferScenario:
    """A buffer, with honest publishers that each came by a network of its own."""

    def __init__(self, *, seed: int = 1, room: int = ROOM) -> None:
        self.buffer = ReplayBuffer(
            limits(max_groups=room, max_groups_per_publisher=room, max_age_seconds=1e7),
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
        kinds = (_kind(item) for item in self.buffer.external_groups())
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
    scenario = BufferScenario()
    scenario.honest(ROOM)
    scenario.fresh(1500)
    assert scenario.held() == {"honest": 160, "fresh": 40}


def test_a_thousand_names_of_one_connection_are_drawn_as_one_network_is() -> None:
    scenario = BufferScenario()
    drawn = Counter[str]()
    for _ in range(250):
        scenario.honest(4)
        scenario.fresh(8)
        drawn += scenario.draw(4)
    # A fifth; of 1,000 draws that is 200, with a standard deviation of 13.
    assert 150 < drawn["fresh"] < 250


def test_more_connections_give_a_peer_no_larger_share_of_its_network() -> None:
    scenario = BufferScenario()
    for number in range(900):
        scenario.bring(f"fresh{number}", "shared", connection=f"c{number % 30}")
        scenario.bring("modest", "its own", signed=True)
    assert scenario.held() == {"modest": 100, "fresh": 100}
    drawn = scenario.draw(100)
    # A half each; the standard deviation is 5.
    assert 30 < drawn["modest"] < 70


def test_within_a_network_each_connection_has_its_part() -> None:
    scenario = BufferScenario()
    for number in range(900):
        scenario.bring(f"fresh{number}", "shared", connection="flood")
        if number < 90:
            scenario.bring("modest", "shared", connection="modest's")
    assert scenario.held()["modest"] == 90
    drawn = scenario.draw(100)
    assert 30 < drawn["modest"] < 70


def test_what_a_connection_passes_on_does_not_displace_what_its_peer_signed() -> None:
    scenario = BufferScenario()
    for _ in range(100):
        scenario.bring("modest", "shared", signed=True)
    for number in range(1500):
        scenario.bring(f"fresh{number}", "shared")
    assert scenario.held() == {"modest": 100, "fresh": 100}


def test_a_newcomer_with_a_network_of_its_own_gets_in_and_is_drawn() -> None:
    scenario = BufferScenario()
    scenario.honest(ROOM)
    scenario.fresh(1500)
    for _ in range(10):
        assert scenario.bring("newcomer", "its own", signed=True) is InsertOutcome.STORED
    assert scenario.held()["newcomer"] == 10
    drawn = Counter[str]()
    for _ in range(40):
        drawn += scenario.draw(4)
        scenario.honest(4)
    assert drawn["newcomer"] == 10, "all of it, against a hundred times as many names"


def test_unused_capacity_is_lent_and_returned() -> None:
    scenario = BufferScenario()
    scenario.fresh(ROOM)
    assert scenario.held() == {"fresh": ROOM}
    scenario.honest(ROOM)
    assert scenario.held() == {"honest": 160, "fresh": 40}


def test_weights_scale_a_share_by_name_or_by_source() -> None:
    for known in ({"fresh": 0.01}, {"bad0": 0.01}):
        scenario = BufferScenario(seed=7)
        drawn = Counter[str]()
        for _ in range(250):
            scenario.honest(4)
            scenario.fresh(8, signed=True)
            drawn += scenario.draw(4, known)
        # Of 1,000 draws a hundredth of a fifth; nothing of it is what honest ones bring.
        assert drawn["fresh"] < 15
    assert scenario.draw(50, {"honest": 0.0, "fresh": 0.0}) == {}
    assert scenario.draw(50, {"honest": 0.0, "fresh": float("nan")}) == {}
    assert set(scenario.draw(10, {"honest": 0.0, "fresh": 1e-9})) == {"fresh"}, "however little"


def test_liars_behind_an_honest_peer_cost_its_other_publishers_nothing() -> None:
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
    scenario = BufferScenario(seed=seed)
    scenario.honest(ROOM)
    part = ROOM // (len(HONEST) + num_bad)
    for kind, count in steps:
        before = Counter(item.group.publisher for item in scenario.buffer.external_groups())
        if kind == "honest":
            scenario.honest(count)
        elif kind == "fresh":
            scenario.fresh(count, networks=num_bad)
        else:
            assert sum(scenario.draw(count).values()) == min(count, before.total())
            continue
        after = Counter(item.group.publisher for item in scenario.buffer.external_groups())
        assert all(after[name] >= min(part, before[name]) for name in HONEST)
        assert after.total() <= ROOM

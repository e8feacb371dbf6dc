"""A node that learns mostly from one network says so, and one that does not says nothing."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from shoal_ipc.messages import GroupOutcome
from shoal_p2p.events import GroupLeased
from shoal_p2p.peers.met_networks import UNKNOWN_NETWORK
from shoal_p2p.rollouts.network_shares import WINDOW_MINUTES, NetworkShares
from shoal_wire.types import PeerId
from tests.p2p.buffer.entries import entry

MINUTE_MS = 60_000
_numbers = itertools.count()


def learn(
    origins: NetworkShares, network: str, name: str = "", *, signal: float = 1.0, now_ms: int = 0
) -> None:
    """Let the trainer be given a group and learn from it."""
    publisher = name or network
    leased = entry(next(_numbers), publisher).group
    origins.add_leased(
        GroupLeased(group_id=leased.group_id, publisher=leased.publisher, network=network)
    )
    outcome = GroupOutcome(
        group_id=leased.group_id,
        publisher=PeerId(publisher),
        model="",
        family="",
        reward=0.5,
        signal=signal,
    )
    origins.add_outcome(outcome, now_ms)


def test_two_hundred_names_behind_one_connection_are_reported_with_the_peer_to_block() -> None:
    origins = NetworkShares()
    for number in range(200):
        learn(origins, "bad", f"name-{number}")
        learn(origins, "good", "ann", signal=1.5)
    assert origins.dominant_network(0) == (
        "40% of the external signal of the last hour came from one network of 2, "
        "with 200 publishers such as name-199"
    )


def test_many_unconnected_publishers_are_reported_from_a_tenth_on() -> None:
    for signal, is_reported in ((0.09, False), (0.15, True)):
        origins = NetworkShares()
        for number in range(200):
            learn(origins, UNKNOWN_NETWORK, f"name-{number}", signal=signal)
            learn(origins, f"network-{number % 5}", signal=1.0)
        assert bool(origins.dominant_network(0)) is is_reported
    assert origins.dominant_network(0) == (
        "13% of the external signal of the last hour came from 200 publishers that this node "
        "was never connected to"
    )
    few = NetworkShares()
    learn(few, UNKNOWN_NETWORK, "ann")
    learn(few, "good")
    assert few.dominant_network(0) == "", "a few names are no crowd"


def test_one_publisher_with_far_more_groups_is_reported() -> None:
    origins = NetworkShares()
    for network, signal in (("bad", 12.0), ("good", 2.0), ("better", 3.0)):
        learn(origins, network, signal=signal)
    assert origins.dominant_network(0).startswith("71% of the external signal")


def test_two_or_three_honest_networks_are_not_reported() -> None:
    for names in (["ann"], ["ann", "bob"], ["ann", "bob", "eve"]):
        origins = NetworkShares()
        for name in names:
            # Which neighbour is the first to pass something on is chance: in a swarm of three on
            # one machine it was one of them for 52 %.
            learn(origins, name, signal=2.2 if name == "ann" else 1.0)
        assert origins.dominant_network(0) == ""


def test_what_was_not_trained_on_own_or_over_an_hour_ago_counts_nothing() -> None:
    origins = NetworkShares()
    own = GroupOutcome(
        group_id=entry(next(_numbers)).group.group_id,
        publisher=PeerId(""),
        model="",
        family="",
        reward=1.0,
        signal=9.0,
    )
    origins.add_outcome(own, 0)
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        learn(origins, "odd", signal=bad)
    assert origins.networks(0) == []
    learn(origins, "a")
    assert len(origins.networks((WINDOW_MINUTES - 1) * MINUTE_MS)) == 1
    assert origins.networks(WINDOW_MINUTES * MINUTE_MS) == []


@given(
    groups=st.lists(
        st.tuples(
            st.integers(0, 5), st.integers(0, 20), st.floats(0.01, 100.0), st.integers(0, 90)
        ),
        min_size=1,
        max_size=60,
    )
)
def test_the_reported_share_is_that_of_the_last_hour(
    groups: list[tuple[int, int, float, int]],
) -> None:
    groups = sorted(groups, key=lambda one: one[3])
    origins = NetworkShares()
    for network, who, signal, minute in groups:
        learn(
            origins, f"n{network}", f"n{network} p{who}", signal=signal, now_ms=minute * MINUTE_MS
        )
    now = groups[-1][3]
    recent = [one for one in groups if one[3] > now - WINDOW_MINUTES]
    by_network: dict[str, float] = {}
    for network, _, signal, _ in recent:
        by_network[f"n{network}"] = by_network.get(f"n{network}", 0.0) + signal
    found = origins.networks(now * MINUTE_MS)
    assert len(found) == len(by_network)
    for one in found:
        name = next(f"n{n}" for n, who, _, _ in reversed(groups) if f"n{n} p{who}" == one.peer_id)
        share = by_network[name] / sum(by_network.values())
        assert abs(one.share - share) < 1e-9
        assert one.networks == len(by_network)
        assert one.names == len({who for n, who, _, _ in recent if f"n{n}" == name})
    assert [one.share for one in found] == sorted((one.share for one in found), reverse=True)
    dominant = origins.dominant_network(now * MINUTE_MS)
    assert bool(dominant) <= any(one.share > 1 / 3 for one in found)

"""The schedule by which a node requests peer lists."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from shoal_p2p.peers.exchange_schedule import ExchangeSchedule
from shoal_p2p.peers.targets import DiscoverySettings
from shoal_wire.types import PeerId

SETTINGS = DiscoverySettings(target_peers=4)
BOOT = PeerId("boot")
PEERS = [PeerId(f"p{n:02}") for n in range(24)]
MINUTE = 60.0


def new_schedule() -> ExchangeSchedule:
    return ExchangeSchedule(SETTINGS, frozenset({BOOT}), random.Random(1))


def test_while_peers_are_missing_each_is_queried_at_once_and_one_repeatedly() -> None:
    pure = new_schedule()
    assert pure.choose(frozenset({BOOT}), 0.0) == [BOOT]
    assert pure.choose(frozenset({BOOT, *PEERS[:3]}), 1.0) == PEERS[:3]
    times = [s for s in range(2, 62) if pure.choose(frozenset({BOOT, *PEERS[:3]}), float(s))]
    assert times == [16, 31, 46, 61]


def test_a_node_without_peers_queries_its_bootstrap_again_soon() -> None:
    pure = new_schedule()
    assert [s for s in range(13) if pure.choose(frozenset({BOOT}), float(s))] == [0, 4, 8, 12]


def test_with_enough_peers_one_new_peer_a_minute_is_queried_and_a_visited_bootstrap_at_once() -> (
    None
):
    pure = new_schedule()
    early = frozenset(PEERS[:4])
    assert pure.choose(early - {PEERS[0]}, 0.0) == PEERS[1:4]
    crowd = frozenset(PEERS)
    choose = [pure.choose(crowd, float(s)) for s in range(1, 301)]
    assert [len(found) for found in choose if found] == [1] * 5
    assert pure.choose(crowd | {BOOT}, 301.0) == [BOOT]
    assert pure.choose(crowd, 302.0) == []
    assert pure.choose(crowd | {BOOT}, 303.0) == [BOOT], "at each visit"


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 100.0),
            st.frozensets(st.sampled_from([BOOT, *PEERS]), max_size=12),
        ),
        max_size=40,
    )
)
def test_every_remaining_peer_is_queried_once_peers_are_missing(
    looks: list[tuple[float, frozenset[PeerId]]],
) -> None:
    """What is not asked while there are peers enough is asked when they have gone."""
    pure, now, since = new_schedule(), 0.0, dict[PeerId, bool]()
    for wait_s, connected in looks:
        now += wait_s
        since = {peer: since.get(peer, False) for peer in connected}
        choose = pure.choose(connected, now)
        assert set(choose) <= connected
        since.update(dict.fromkeys(choose, True))
        if len(connected - {BOOT}) < SETTINGS.target_peers:
            assert all(since.values())
        else:
            assert len([peer for peer in choose if peer != BOOT]) <= 1
            assert since.get(BOOT, True)

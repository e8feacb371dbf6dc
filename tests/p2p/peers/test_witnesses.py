"""Who is asked what one cannot see oneself: names of one network are one voice."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.net.connections import ConnectionInfo
from shoal_p2p.peers.skew import skew_of
from shoal_p2p.peers.witnesses import most_say_so, witnesses
from shoal_wire.types import PeerId
from tests.support.doubles.host import connection_of

HOUR_MS = 3_600_000


def at(host: str, name: str) -> ConnectionInfo:
    return connection_of(name, f"/ip4/{host}/tcp/4001")


@settings(max_examples=50)
@given(st.integers(3, 30), st.integers(0, 1000))
def test_liars_of_one_network_change_nobodys_clock(num_liars: int, seed: int) -> None:
    liars = {f"liar {n}" for n in range(num_liars)}
    there = [at(f"203.0.113.{n}", liar) for n, liar in enumerate(sorted(liars))]
    there += [at("192.0.2.1", "honest 1"), at("198.51.100.1", "honest 2")]
    chosen = witnesses(there, random.Random(seed), most=5)
    skew = skew_of([HOUR_MS if peer in liars else 20 for peer in chosen])
    assert len(chosen) == 3
    assert skew is not None and not skew.is_wrong


@settings(max_examples=50)
@given(st.integers(1, 30), st.integers(0, 1000))
def test_nor_do_as_many_as_the_honest(num_liars: int, seed: int) -> None:
    """Two networks, one of them a house full of honest peers."""
    there = [at(f"203.0.113.{n}", f"liar {n}") for n in range(num_liars)]
    there += [at(f"192.168.1.{n}", f"honest {n}") for n in range(2, 9)]
    chosen = witnesses(there, random.Random(seed), most=4)
    skew = skew_of([HOUR_MS if peer.startswith("liar") else 20 for peer in chosen])
    assert len(chosen) == 4
    assert skew is not None and not skew.is_wrong


def test_several_peers_of_one_network_or_machine_are_queried() -> None:
    for hosts in (["192.168.1.7"] * 9, ["127.0.0.1"] * 9):
        there = [at(host, f"peer {n}") for n, host in enumerate(hosts)]
        for most, found in ((5, 5), (20, 9)):
            chosen = witnesses(there, random.Random(1), most=most)
            assert len(chosen) == len(set(chosen)) == found
    assert witnesses([], random.Random(1), most=5) == []


def test_where_networks_are_at_odds_it_is_not_so() -> None:
    there = [at("203.0.113.1", "one"), at("198.51.100.1", "two"), at("192.0.2.1", "three")]
    one, two, three = (PeerId(name) for name in ("one", "two", "three"))
    assert not most_say_so({}, there)
    assert most_say_so({one: True}, there), "better than nothing"
    assert not most_say_so({one: True, two: False}, there)
    assert most_say_so({one: True, two: True, three: False}, there)
    assert most_say_so({PeerId("gone"): True, one: True, two: False}, there)


@settings(max_examples=200)
@given(st.lists(st.integers(1, 9), min_size=3, max_size=9), st.data())
def test_fewer_networks_do_not_outvote_more_however_many_names_they_have(
    names: list[int], data: st.DataObject
) -> None:
    num_liars = data.draw(st.integers(0, (len(names) - 1) // 2))
    truth = data.draw(st.booleans())
    there, reported = [], {}
    for network, num_names in enumerate(names):
        lies = network < num_liars
        for number in range(9 if lies else num_names):
            one = at(f"198.51.{network}.{number + 1}", f"{network}/{number}")
            there.append(one)
            reported[one.peer_id] = truth is not lies
    assert most_say_so(reported, there) is truth

"""Where a node may be knocked at, by what its peers say of its connections."""

from __future__ import annotations

from shoal_p2p.peers.punch_candidates import ObservedAddress, is_symmetric_nat, punch_candidates


def seen(local_port: int, observed: str) -> ObservedAddress:
    return ObservedAddress(local_port=local_port, observed=observed)


def test_what_is_seen_of_a_port_listened_on_comes_first() -> None:
    sightings = [
        seen(50000, "/ip4/198.51.100.7/tcp/50000"),
        seen(4001, "/ip4/198.51.100.7/tcp/61234"),
    ]
    assert punch_candidates(sightings, [4001]) == (
        "/ip4/198.51.100.7/tcp/61234",
        "/ip4/198.51.100.7/tcp/4001",
    )


def test_who_was_seen_of_other_ports_only_guesses_that_the_number_is_kept() -> None:
    assert punch_candidates([seen(50000, "/ip6/2001:db8::1/tcp/3")], [4001]) == (
        "/ip6/2001:db8::1/tcp/4001",
    )


def test_without_observations_there_are_no_candidates() -> None:
    assert punch_candidates([seen(4001, "")], [4001]) == ()
    assert punch_candidates([seen(4001, "/dns4/evil.example/tcp/1")], [4001]) == ()


def test_a_router_with_a_port_per_peer_is_a_symmetric_nat() -> None:
    one = seen(4001, "/ip4/198.51.100.7/tcp/4001")
    assert not is_symmetric_nat([one, one, seen(4002, "/ip4/198.51.100.7/tcp/9")])
    assert not is_symmetric_nat([one, seen(4001, "/ip4/203.0.113.1/tcp/9")])
    assert is_symmetric_nat([one, seen(4001, "/ip4/198.51.100.7/tcp/4003")])

"""Which address leads others here: what peers have tried, then what it is."""

from __future__ import annotations

from shoal_ipc.answers.doctor import BootstrapSeen
from shoal_p2p.ipc.join_addresses import join_addresses
from shoal_p2p.peers.outside import ReachabilityReport
from shoal_wire.types import PeerId

ME = PeerId("12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV")
RELAY = PeerId("12D3KooWLYBoJNb1WMHGn87ftnFraFLbqpyyyPvbJBJW5LU8AtXH")
BOOT = f"/ip4/9.9.9.9/tcp/1/p2p/{RELAY}"


def own(transport: str) -> str:
    return f"{transport}/p2p/{ME}"


def seen(observed: str, *open_ports: int, dialled: bool = True) -> ReachabilityReport:
    return ReachabilityReport(
        peer_id=RELAY, observed=observed, open_ports=open_ports, dialled=dialled, clock_ahead_ms=0
    )


LOOPBACK, HOME = own("/ip4/127.0.0.1/tcp/4001"), own("/ip4/192.168.1.5/tcp/4001")
PUBLIC = own("/ip4/5.6.7.8/tcp/4001")
CIRCUIT = own(f"/ip4/9.9.9.9/tcp/1/p2p/{RELAY}/p2p-circuit")


def test_public_before_a_relay_before_a_home_network_before_loopback() -> None:
    ways = join_addresses(ME, (LOOPBACK, HOME, CIRCUIT, PUBLIC))
    own_ways = [way for way in ways if way.via == "self"]
    assert [way.address for way in own_ways] == [PUBLIC, CIRCUIT, HOME, LOOPBACK]
    assert [way.scope for way in own_ways] == ["public", "public", "private", "loopback"]
    assert [way.relayed for way in own_ways] == [False, True, False, False]


def test_the_relay_through_which_it_is_reached_is_a_way_without_it() -> None:
    relay, circuit = join_addresses(ME, (CIRCUIT,))
    assert (relay.address, relay.via, relay.relayed) == (BOOT, "relay", False)
    assert (circuit.address, circuit.via) == (CIRCUIT, "self")
    (once, _) = join_addresses(
        ME, (CIRCUIT,), bootstraps=[BootstrapSeen(address=BOOT, latency_ms=3.0)]
    )
    assert once.address == BOOT, "a bootstrap that relays is one way"


def test_a_port_that_a_router_hands_on_is_found_by_who_reached_it() -> None:
    ways = join_addresses(
        ME, (HOME,), outside=[seen("/ip4/5.6.7.8/tcp/61234", 4001)], ports=(4001,)
    )
    assert [way.address for way in ways] == [PUBLIC, HOME]
    assert ways[0].dial_result == "reached"


def test_what_peers_could_not_reach_comes_after_a_relay() -> None:
    outside = [seen("/ip4/5.6.7.8/tcp/61234")]
    ways = join_addresses(ME, (PUBLIC, CIRCUIT), outside=outside, ports=(4001,))
    assert [way.address for way in ways] == [BOOT, CIRCUIT, PUBLIC]
    assert ways[2].dial_result == "failed"
    # One who reached it is enough, and who has not tried says nothing.
    reached = [*outside, seen("/ip4/5.6.7.8/tcp/61234", 4001)]
    assert (
        join_addresses(ME, (PUBLIC, CIRCUIT), outside=reached, ports=(4001,))[0].address == PUBLIC
    )
    still = [*outside, *_silent()]
    assert join_addresses(ME, (PUBLIC, CIRCUIT), outside=still, ports=(4001,))[1].address == CIRCUIT
    assert (
        join_addresses(ME, (PUBLIC,), outside=_silent(), ports=(4001,))[0].dial_result == "untried"
    )


def _silent() -> list[ReachabilityReport]:
    return [seen("/ip4/5.6.7.8/tcp/61234", dialled=False), seen("", 4001)]


def test_a_bootstrap_that_answers_is_a_way_and_one_that_does_not_is_none() -> None:
    gone = BOOT.replace("9.9.9.9", "8.8.8.8")
    bootstraps = [
        BootstrapSeen(address=BOOT, latency_ms=3.0),
        BootstrapSeen(address=gone, latency_ms=None, error="away"),
        BootstrapSeen(
            address="/dns4/a.example/tcp/1/p2p/" + RELAY, latency_ms=None, full_backoff_s=5.0
        ),
    ]
    ways = join_addresses(ME, (HOME,), bootstraps=bootstraps)
    assert [(way.via, way.scope) for way in ways] == [
        ("bootstrap", "public"),
        ("bootstrap", "public"),
        ("self", "private"),
    ]
    assert gone not in {way.address for way in ways}


def test_a_relay_on_loopback_is_no_join_address_for_other_machines() -> None:
    circuit = own(f"/ip4/127.0.0.1/tcp/1/p2p/{RELAY}/p2p-circuit")
    assert {way.scope for way in join_addresses(ME, (circuit,))} == {"loopback"}

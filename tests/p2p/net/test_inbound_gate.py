"""Slots and pace by network prefix, and the read rate of one peer."""

from __future__ import annotations

import pytest

from shoal_p2p.fair.buckets import Rate
from shoal_p2p.gossip.rate_limiter import FloodLimits, RateLimiter
from shoal_p2p.net.inbound_gate import GateLimits, GateRefusal, GateTicket, InboundGate, prefix_of
from shoal_wire.types import PeerId

PEER, AUTHOR = PeerId("peer"), PeerId("author")
ONE, SAME, OTHER = "203.0.113.7", "203.0.113.200", "198.51.100.1"


@pytest.mark.parametrize(
    ("host", "prefix"),
    [
        (ONE, "203.0.113.0/24"),
        ("::ffff:203.0.113.7", "203.0.113.0/24"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ("fe80::1%eth0", "fe80::/48"),
        ("127.0.0.1", None),
        ("::1", None),
        ("", None),
    ],
)
def test_limits_apply_to_networks_not_to_peer_ids(host: str, prefix: str | None) -> None:
    assert prefix_of(host) == prefix


def admitted(gate: InboundGate, host: str, now: float = 0.0) -> GateTicket:
    ticket = gate.admit(host, now)
    assert isinstance(ticket, GateTicket)
    return ticket


def test_each_prefix_has_its_own_slots() -> None:
    gate = InboundGate(GateLimits(prefix_connections=2), 0.0)
    first = admitted(gate, ONE)
    admitted(gate, SAME).on_handshake_done()
    assert gate.admit(ONE, 0.0) is GateRefusal.PREFIX_FULL
    admitted(gate, OTHER)
    first.on_closed()
    admitted(gate, ONE)
    assert gate.refused == {GateRefusal.PREFIX_FULL: 1}


def test_unfinished_handshakes_of_a_prefix_are_limited() -> None:
    gate = InboundGate(GateLimits(prefix_handshakes=2), 0.0)
    shaking = [admitted(gate, ONE), admitted(gate, ONE)]
    assert gate.admit(SAME, 0.0) is GateRefusal.PREFIX_HANDSHAKES
    admitted(gate, OTHER)
    shaking[0].on_handshake_done()
    shaking[1].on_closed()
    admitted(gate, SAME)


def test_a_prefix_that_reconnects_repeatedly_is_paced() -> None:
    gate = InboundGate(GateLimits(prefix_pace=Rate(per_second=1.0, burst=5.0)), 0.0)
    for _ in range(5):
        admitted(gate, ONE).on_closed()
    assert gate.admit(ONE, 0.0) is GateRefusal.PREFIX_PACE
    admitted(gate, OTHER).on_closed()
    admitted(gate, ONE, now=1.0).on_closed()
    assert gate.admit(ONE, 1.0) is GateRefusal.PREFIX_PACE


def test_loopback_is_exempt_by_default() -> None:
    free = InboundGate(GateLimits(prefix_connections=1), 0.0)
    bound = InboundGate(GateLimits(prefix_connections=1, limit_loopback=True), 0.0)
    admitted(free, "127.0.0.1")
    admitted(free, "127.0.0.1")
    admitted(bound, "127.0.0.1")
    assert bound.admit("127.0.0.1", 0.0) is GateRefusal.PREFIX_FULL
    admitted(bound, "127.9.9.9")


def test_all_together_are_paced_and_the_memory_of_prefixes_is_bounded() -> None:
    gate = InboundGate(GateLimits(pace=Rate(per_second=1.0, burst=5000.0)), 0.0)
    for number in range(5000):
        admitted(gate, f"10.{number // 250}.{number % 250}.1").on_closed()
    assert gate.admit("192.0.2.1", 0.0) is GateRefusal.PACE
    assert len(gate._paces) <= 4096
    assert not gate._open
    assert not gate._handshaking


LIMITS = FloodLimits(pace_per_second=10.0, pace_burst=20.0, waste_per_second=10.0, waste_burst=20.0)


def test_useful_messages_are_paced_and_never_an_offence() -> None:
    flow = RateLimiter(LIMITS).for_peer(PEER, 0.0)
    flow.charge_read(20, 0, 0.0)
    assert flow.wait_s(0.0) == 0.0
    flow.charge_read(10, 0, 0.0)
    assert flow.wait_s(0.0) == pytest.approx(1.0)
    assert not flow.is_to_blame(0.0)
    assert flow.wait_s(1.0) == 0.0


def test_pauses_are_forgiven_over_time() -> None:
    flow = RateLimiter(LIMITS).for_peer(PEER, 0.0)
    assert flow.charge_pause(1.0, 1.0) == 0
    assert flow.charge_pause(1.0, 60.0) == 0, "an honest burst a minute is no flood"


def test_reconnecting_resets_nothing_and_memory_is_bounded() -> None:
    gate = RateLimiter(LIMITS)
    gate.for_peer(PEER, 0.0).charge_waste(100.0, 0.0)
    assert gate.for_peer(PEER, 0.0).wait_s(0.0) > 0
    for number in range(3000):
        gate.for_peer(PeerId(str(number)), 0.0)
    assert len(gate._peers) <= 1024


def test_waste_of_absent_authors_is_kept_and_evicts_no_connection() -> None:
    gate = RateLimiter(LIMITS)
    gate.for_peer(PEER, 0.0).charge_waste(30.0, 0.0)
    gate.charge_author(AUTHOR, 30.0, 0.0)
    gate.charge_author(PEER, 10.0, 0.0)
    assert gate.for_peer(AUTHOR, 0.0).is_to_blame(0.0), "it has come now"
    for number in range(3000):
        gate.charge_author(PeerId(str(number)), 30.0, 0.0)
    assert gate.for_peer(PEER, 0.0).wait_s(0.0) == pytest.approx(2.0)
    assert len(gate._peers) == 2
    assert len(gate._authors) <= 1024

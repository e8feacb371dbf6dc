"""When, how often and at which peers holes are punched: in virtual time and between real hosts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from libp2p.abc import INetStream
from libp2p.relay.circuit_v2.pb.dcutr_pb2 import HolePunch as Message
from libp2p.utils.varint import encode_varint_prefixed

from shoal_base.waits import LOOK_S
from shoal_p2p.net.address import host_and_port, is_circuit
from shoal_p2p.net.announced import AnnouncedAddresses
from shoal_p2p.net.connections import Direction
from shoal_p2p.net.dcutr import initiate, respond
from shoal_p2p.parts import REAL, Libp2pNetwork, MapsPort, Punches
from shoal_p2p.peer import PeerNode
from shoal_p2p.peers import hole_punch
from shoal_p2p.peers.address_policy import DIALS_PER_ADDRESS, AddressPolicy
from shoal_p2p.peers.hole_punch import HolePunch
from shoal_p2p.peers.outside import AGAIN_S
from shoal_wire.types import PeerId
from tests.p2p.peers.test_relay import Hidden, open_hidden, open_relay_host
from tests.support.doubles.network import in_virtual_time
from tests.support.nodes import fresh_identity, until
from tests.support.peers import quiet_settings
from tests.support.routed_host import Partner, RoutedHost
from tests.support.running import running
from tests.support.talks import open_talk

FRIEND, OTHER = fresh_identity().peer_id, fresh_identity().peer_id
CIRCUIT = f"/ip4/203.0.113.1/tcp/4001/p2p/{fresh_identity().peer_id}/p2p-circuit"
DOOR, THEIRS = "/ip4/198.51.100.11/tcp/4001", "/ip4/198.51.100.12/tcp/4002"
VICTIM = "/ip4/192.0.2.66/tcp/22"


def behind(partner: Partner, **more: Any) -> RoutedHost:
    """A host that knows its own door, and to which a peer has come through a relay."""
    host = RoutedHost(partner=partner, announced=AnnouncedAddresses((DOOR,)), **more)
    host.connect(OTHER, address=CIRCUIT)
    return host


def punching_of(host: Any) -> HolePunch:
    return HolePunch(host=host, address_policy=AddressPolicy(host))


async def willing(stream: INetStream) -> None:
    await respond(stream, [THEIRS])


async def silent(stream: INetStream) -> None:
    await trio.sleep_forever()


@asynccontextmanager
async def punching_at(host: RoutedHost) -> AsyncIterator[HolePunch]:
    punch = punching_of(host)
    async with trio.open_nursery() as nursery:
        host.nursery = nursery
        await nursery.start(punch.run)
        yield punch
        nursery.cancel_scope.cancel()


@pytest.mark.virtual_time
async def test_an_inbound_circuit_becomes_direct_and_the_log_shows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    host = behind(willing, opens=lambda number, _a: number == 2)
    async with punching_at(host) as punch:
        await trio.sleep(30)
    assert [(address, client) for _, address, client in host.knocks] == [(THEIRS, False)] * 2
    assert punch.counts == (1, 1)
    assert f"{OTHER} is reached directly, at {THEIRS}" in caplog.text


@pytest.mark.virtual_time
async def test_without_circuits_nothing_runs_until_a_peer_connects() -> None:
    host = behind(willing, opens=lambda *_: True)
    host.lose(OTHER)
    host.connect(FRIEND, address=THEIRS)
    async with punching_at(host):
        await trio.sleep(600)
        assert host.num_looks <= 600 / LOOK_S + 2
        host.connect(OTHER, address=CIRCUIT)
        await trio.sleep(5)
        assert [address for _, address, _ in host.knocks] == [THEIRS]


@pytest.mark.virtual_time
async def test_a_circuit_left_of_two_connections_is_found_without_a_new_connection() -> None:
    host = behind(willing, opens=lambda *_: True)
    host.peers[OTHER].address = THEIRS
    async with punching_at(host):
        await trio.sleep(60)
        host.peers[OTHER].address = CIRCUIT
        await trio.sleep(20)
        assert host.knocks


@pytest.mark.virtual_time
async def test_who_can_be_reached_where_it_listens_is_just_dialled() -> None:
    host = behind(silent, opens=lambda *_: True)
    host.peers[OTHER].announced = (CIRCUIT, THEIRS)
    async with punching_at(host) as punch:
        await trio.sleep(30)
    assert [(address, client) for _, address, client in host.knocks] == [(THEIRS, True)]
    assert (punch.counts, host.num_talks) == ((1, 1), 0)


@pytest.mark.parametrize("partner", [willing, silent])
@pytest.mark.virtual_time
async def test_it_is_tried_three_times_and_then_not_for_a_while(
    partner: Partner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    host = behind(partner)
    for port in (4001, 4002):  # this node's router shows each another port
        friend = fresh_identity().peer_id
        host.connect(friend, address=THEIRS, observed=f"/ip4/198.51.100.11/tcp/{port}")
        host.local_ports[friend] = 4001
    async with punching_at(host) as punch:
        await trio.sleep(40)
        assert (punch.counts, host.num_talks) == ((0, 1), 3)
        assert "stays behind its relay" in caplog.text
        assert "shows each peer another port" in caplog.text
        await trio.sleep(AGAIN_S - 60)
        assert host.num_talks == 3
        await trio.sleep(120)
        assert host.num_talks == 6


@pytest.mark.virtual_time
async def test_circuits_that_go_out_and_direct_ones_are_left_to_the_other_side() -> None:
    host = behind(willing)
    host.peers[OTHER].direction = Direction.OUT
    host.connect(FRIEND, address=THEIRS)
    async with punching_at(host):
        await trio.sleep(60)
    assert host.num_talks == 0


async def follow(punch: HolePunch, lead: Partner, peer_id: PeerId = OTHER) -> bool:
    """Let a peer lead; return whether it was answered."""
    mine, theirs = open_talk(FRIEND, peer_id)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lead, theirs)
        with suppress(trio.TooSlowError):
            await punch.follow(peer_id, mine)
        nursery.cancel_scope.cancel()
    return bool(mine.sent)


@pytest.mark.virtual_time
async def test_who_follows_dials_at_once_and_is_the_client() -> None:
    host = behind(silent, opens=lambda *_: True)
    host.peers[OTHER].direction = Direction.OUT
    punch = punching_of(host)
    await follow(punch, lambda stream: initiate(stream, [THEIRS]))
    assert [(address, client) for _, address, client in host.knocks] == [(THEIRS, True)]
    assert punch.counts == (1, 1)


@pytest.mark.virtual_time
async def test_only_a_relayed_peer_initiates_and_never_twice_at_once() -> None:
    host = behind(silent)
    punch = punching_of(host)
    many = [fresh_identity().peer_id for _ in range(20)]
    host.connect(FRIEND, address=THEIRS)
    for one in many:
        host.connect(one, address=CIRCUIT, direction=Direction.OUT)
    assert not await follow(punch, lambda stream: initiate(stream, [VICTIM]), FRIEND)
    answered: list[bool] = []

    async def lead(peer_id: PeerId) -> None:
        async def says_connect_and_no_more(stream: INetStream) -> None:
            await stream.write(
                encode_varint_prefixed(Message(type=Message.CONNECT).SerializeToString())
            )
            await trio.sleep_forever()

        answered.append(await follow(punch, says_connect_and_no_more, peer_id))

    async with trio.open_nursery() as nursery:
        for peer_id in (*many, *many):
            nursery.start_soon(lead, peer_id)
    assert sum(answered) == 8
    assert not host.knocks
    assert await follow(punch, lambda stream: initiate(stream, [THEIRS]), many[0]), (
        "places are free"
    )


PRIVATE = ("/ip4/192.168.0.1/tcp/80", "/ip4/127.0.0.1/tcp/631", "/ip4/10.0.0.1/tcp/1")


@pytest.mark.virtual_time
async def test_a_partner_has_nothing_dialled_that_it_may_not_tell_of() -> None:
    at_home = CIRCUIT.replace("203.0.113.1", "192.168.0.7")
    for relay, dialled in ((CIRCUIT, set()), (at_home, {PRIVATE[0]})):
        host = behind(lambda stream: respond(stream, PRIVATE))
        host.connect(OTHER, address=relay, announced=PRIVATE)
        async with punching_at(host) as punch:
            await follow(punch, lambda stream: initiate(stream, PRIVATE))
            await trio.sleep(60)
        assert {address for _, address, _ in host.knocks} == dialled


Talk = tuple[int, int, float]
"""Under which name, from which address on, seconds until the next."""
TALKS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.floats(0, 20)), max_size=40)


@settings(max_examples=5, phases=[Phase.generate])
@given(TALKS, st.integers(1, 3))
def test_no_course_of_talks_points_many_dials_at_a_third_party(
    talks: list[Talk], num_names: int
) -> None:
    """In either role and under any names, the dials stay within third-party limits."""
    play_talks(talks[:6], num_names)


@pytest.mark.slow
@settings(max_examples=200, phases=[Phase.generate])
@given(TALKS, st.integers(1, 30))
def test_no_long_course_of_talks_does_either(talks: list[Talk], num_names: int) -> None:
    play_talks(talks, num_names)


def play_talks(talks: list[Talk], num_names: int) -> None:
    names = [fresh_identity().peer_id for _ in range(num_names)]
    addresses = [VICTIM, *(f"/ip4/192.0.2.66/tcp/{port}" for port in range(23, 40))]
    host = behind(lambda stream: respond(stream, addresses))
    host.peers.clear()
    for number, name in enumerate(names):
        host.connect(name, address=CIRCUIT, direction=Direction.IN if number % 2 else Direction.OUT)

    async def course() -> None:
        async with punching_at(host) as punch:
            async with trio.open_nursery() as nursery:
                for name, first, pause_s in talks:
                    nursery.start_soon(
                        follow,
                        punch,
                        lambda stream, first=first: initiate(stream, addresses[first:]),
                        names[name % num_names],
                    )
                    await trio.sleep(pause_s)
            await trio.sleep(10)

    in_virtual_time(course)
    for place in {address for _, address, _ in host.knocks}:
        times = [at for at, address, _ in host.knocks if address == place]
        for start in times:
            in_a_minute = sum(start <= at < start + 60 for at in times)
            assert in_a_minute <= DIALS_PER_ADDRESS.burst + 4 + 1
    assert {host_and_port(a)[0] for _, a, _ in host.knocks} <= {"192.0.2.66"}


async def test_a_peer_gives_it_the_dials_of_its_own_discovery(tmp_path: Path) -> None:
    given: list[AddressPolicy] = []
    mapping: list[tuple[bool, Callable[[], None]]] = []

    class Recorded(Libp2pNetwork):
        def punches(self, address_policy: AddressPolicy) -> Punches:
            given.append(address_policy)
            return super().punches(address_policy)

        def port_mapping(self, *, wanted: bool, on_reached: Callable[[], None]) -> MapsPort:
            mapping.append((wanted, on_reached))
            return super().port_mapping(wanted=wanted, on_reached=on_reached)

    peer = PeerNode(
        identity=fresh_identity(),
        settings=quiet_settings(tmp_path, announce=(DOOR,), port_mapping=False),
        parts=replace(REAL, network=Recorded),
    )
    assert given == [peer.address_policy], "one budget for all third-party addresses"
    assert mapping == [(False, peer.relays.look_again)]
    assert peer.host.announced.configured == (DOOR,)  # type: ignore[attr-defined]


# Between real hosts: all are on this machine, and so may report loopback.


@asynccontextmanager
async def punching(hidden: Hidden) -> AsyncIterator[HolePunch]:
    punch = punching_of(hidden.node.host)
    async with running(punch):
        yield punch


async def test_two_relayed_hosts_become_direct_and_let_the_circuit_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = b"k" * 32
    monkeypatch.setattr(hole_punch, "RETRY_S", 0.05)
    monkeypatch.setattr("shoal_p2p.net.host.SHORT_DEADLINE_S", 0.1)
    async with (
        open_relay_host(key=key) as (relay, server),
        open_hidden(relay, key=key) as one,
        open_hidden(relay, key=key) as two,
        punching(one) as leading,
        punching(two) as following,
    ):
        hosts = (one.node.host, two.node.host)
        gone: list[PeerId] = []
        for host in hosts:
            host.add_peer_callbacks(disconnected=gone.append)
        await two.node.host.dial(one.circuit)
        await until(lambda: server.num_circuits == 1)
        for host, other in (hosts, hosts[::-1]):
            await until(lambda host=host, other=other: not is_circuit(way(host, other.peer_id)))
        await until(lambda: server.num_circuits == 0)
        assert not gone, "neither has lost the other for a moment"
        await until(lambda: leading.counts == (1, 1))
        # No punch is requested where the first dial, at addresses from identify, is answered.
        assert following.counts in ((0, 0), (1, 1))
        assert await one.node.host.ping(two.node.peer_id) > 0


def way(host: object, peer_id: PeerId) -> str:
    found = (c.address for c in host.connections() if c.peer_id == peer_id)  # type: ignore[attr-defined]
    return next(found, CIRCUIT)

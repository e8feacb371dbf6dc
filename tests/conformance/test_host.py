"""The real and the simulated host implement `net.interface.Host`: connections."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import pytest
import trio

from shoal_p2p.net.address import parse_peer_address, parse_transport
from shoal_p2p.net.connections import Direction
from shoal_p2p.net.host import DialError, ListenError
from shoal_p2p.net.interface import Host
from shoal_wire.types import PeerId
from tests.conformance.talkers import connect
from tests.conformance.worlds import World
from tests.support.nodes import fresh_identity, until


class Calls:
    """The arguments of a host's callbacks."""

    def __init__(self, host: Host) -> None:
        self.connected: list[PeerId] = []
        self.disconnected: list[PeerId] = []
        host.add_peer_callbacks(
            connected=self.connected.append, disconnected=self.disconnected.append
        )


def address_of(host: Host) -> str:
    return host.listen_addrs()[0]


async def parted(*hosts: Host) -> None:
    """Wait until none of `hosts` has a connection."""
    await until(lambda: not any(host.connections() for host in hosts))


async def is_refused(one: Host, other: Host) -> None:
    """Check that `one` cannot dial `other`, and that neither reports a connection."""
    with pytest.raises(DialError) as caught:
        await one.dial(address_of(other))
    assert "\n" not in str(caught.value)
    await until(lambda: not one.is_connected(other.peer_id) and not other.is_connected(one.peer_id))


# Identity and addresses


async def test_started_means_that_every_address_can_be_dialled(world: World) -> None:
    host = world.make_host()
    assert host.listen_addrs() == ()
    await world.start(host)
    assert host.listen_addrs()
    for address in host.listen_addrs():
        assert parse_peer_address(address).peer_id == host.peer_id
        client = await world.host()
        assert await client.dial(address) == host.peer_id
    await host.close()
    assert host.listen_addrs() == ()


async def test_port_zero_is_any_free_port(world: World) -> None:
    anywhere = "/ip4/127.0.0.1/tcp/0"
    one, two = world.make_host(listen=anywhere), world.make_host(listen=anywhere)
    for host in (one, two):
        await world.start(host)
    transports = {parse_peer_address(address_of(host)).transport for host in (one, two)}
    assert len(transports - {anywhere}) == 2
    await connect(one, two)


async def test_a_malformed_address_is_not_listened_at(world: World) -> None:
    for address in ("", "x", "/ip4/127.0.0.1", "/ip4/127.0.0.1/udp/1/quic-v1"):
        host = world.make_host(listen=address)
        await does_not_start(host)
        await host.close()


async def does_not_start(host: Host) -> None:
    with pytest.RaisesGroup(ListenError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(host.run)


async def test_a_taken_address_is_not_listened_at(world: World) -> None:
    first, client = await world.hosts(2)
    taken = parse_peer_address(address_of(first)).transport
    await does_not_start(world.make_host(listen=taken))
    assert await client.dial(address_of(first)) == first.peer_id


async def test_closing_tells_the_others_and_frees_the_address(world: World) -> None:
    one, two = await world.pair()
    calls = [Calls(one), Calls(two)]
    transport = parse_peer_address(address_of(one)).transport
    await one.close()
    assert not one.connections()
    await one.close()
    await parted(two)
    assert [c.disconnected for c in calls] == [[two.peer_id], [one.peer_id]]
    again = world.make_host(listen=transport)
    await world.start(again)
    assert await two.dial(f"{transport}/p2p/{again.peer_id}") == again.peer_id


async def test_a_host_that_is_cancelled_is_gone_too(world: World) -> None:
    one, two = world.make_host(), await world.host()
    async with trio.open_nursery() as nursery:
        await nursery.start(one.run)
        await connect(one, two)
        address = address_of(one)
        nursery.cancel_scope.cancel()
    assert not one.connections()
    await one.close()
    await parted(two)
    with pytest.raises(DialError):
        await two.dial(address)


# Connections


async def test_a_dial_connects_both_and_calls_back_once(world: World) -> None:
    one, two = await world.hosts(2)
    calls = [Calls(one), Calls(two)]
    assert await one.dial(address_of(two)) == two.peer_id
    await until(lambda: one.is_connected(two.peer_id) and two.is_connected(one.peer_id))
    assert one.connected_peers() == {two.peer_id}
    assert two.connected_peers() == {one.peer_id}
    assert not one.is_connected(one.peer_id)
    for dialler, target in ((one, two), (two, one)):
        assert await dialler.dial(address_of(target)) == target.peer_id
    assert len(one.connections()) == len(two.connections()) == 1
    assert [c.connected for c in calls] == [[two.peer_id], [one.peer_id]]
    assert [c.disconnected for c in calls] == [[], []]


@pytest.mark.parametrize("mutual", [True, False])
async def test_two_dials_at_once_leave_one_connection(world: World, mutual: bool) -> None:
    one, two = await world.hosts(2)
    calls = [Calls(one), Calls(two)]
    second, target = (two, one) if mutual else (one, two)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.dial, address_of(two))
        nursery.start_soon(second.dial, address_of(target))
    await until(lambda: one.is_connected(two.peer_id) and two.is_connected(one.peer_id))
    await world.rest()
    assert len(one.connections()) == len(two.connections()) == 1
    assert one.connections()[0].direction is not two.connections()[0].direction
    assert [c.connected for c in calls] == [[two.peer_id], [one.peer_id]]
    assert [c.disconnected for c in calls] == [[], []]


async def test_no_host_answers_at_a_wrong_address(world: World) -> None:
    one, two, three, gone = await world.hosts(4)
    here, there, left = (parse_peer_address(address_of(h)).transport for h in (one, two, gone))
    await gone.close()
    unknown = fresh_identity().peer_id
    for wrong in (
        f"{here}/p2p/{one.peer_id}",
        f"{left}/p2p/{gone.peer_id}",
        f"{left}/p2p/{two.peer_id}",
        f"{there}/p2p/{three.peer_id}",
        f"{there}/p2p/{unknown}",
    ):
        with pytest.raises(DialError) as caught:
            await one.dial(wrong)
        assert "\n" not in str(caught.value)
    await parted(one, two, three)


async def test_a_malformed_address_is_not_dialled(world: World) -> None:
    one, two = await world.hosts(2)
    good = parse_peer_address(address_of(two))
    at, name = good.transport, good.peer_id
    for form in (
        "",
        "x",
        at,
        f"{at}/p2p/",
        f"{at}/p2p/x",
        f"/tcp/1/p2p/{name}",
        f"{at}/ws/p2p/{name}",
    ):
        with pytest.raises(ValueError, match=r"."):
            await one.dial(form)
        assert not one.connections(), form


async def test_a_dial_of_the_silent_ends_in_time(world: World) -> None:
    one, two = await world.hosts(2)
    cable = await world.cable(two)
    cable.pull()
    began = trio.current_time()
    with pytest.raises(DialError, match=r"within 0\.5 s"):
        await one.dial(cable.address, timeout=0.5)
    assert 0.49 < trio.current_time() - began < 5.0
    with pytest.raises(DialError):
        await one.dial(cable.address, timeout=0.0)
    assert not one.is_connected(two.peer_id)


Ending = Callable[[Host, PeerId], Awaitable[None]]


async def disconnect(host: Host, peer_id: PeerId) -> None:
    await host.disconnect(peer_id)
    assert not host.is_connected(peer_id)


async def abort(host: Host, peer_id: PeerId) -> None:
    await trio.lowlevel.checkpoint()
    host.abort(peer_id)


@pytest.mark.parametrize("end", [disconnect, abort])
async def test_who_is_cut_off_is_gone_for_both_and_may_return(world: World, end: Ending) -> None:
    one, two = await world.pair()
    calls = [Calls(one), Calls(two)]
    await end(one, fresh_identity().peer_id)
    assert one.is_connected(two.peer_id)
    await end(one, two.peer_id)
    await parted(one, two)
    assert [c.disconnected for c in calls] == [[two.peer_id], [one.peer_id]]
    assert (one.connected_peers(), two.connected_peers()) == (frozenset(), frozenset())
    await connect(two, one)
    assert [c.connected for c in calls] == [[two.peer_id], [one.peer_id]]


async def test_a_callback_that_raises_disturbs_no_other(world: World) -> None:
    one, two, three = await world.hosts(3)

    def broken(peer_id: PeerId) -> None:
        raise RuntimeError(peer_id)

    one.add_peer_callbacks(connected=broken, disconnected=broken)
    calls = Calls(one)
    await connect(two, one)
    await connect(one, three)
    assert calls.connected == [two.peer_id, three.peer_id]
    await one.disconnect(two.peer_id)
    assert calls.disconnected == [two.peer_id]
    assert one.is_connected(three.peer_id)


@pytest.mark.parametrize("dials", [True, False])
async def test_a_callback_may_cut_off_who_comes(world: World, dials: bool) -> None:
    one, two = await world.hosts(2)
    calls = [Calls(one), Calls(two)]
    one.add_peer_callbacks(connected=one.abort)
    dialler, target = (one, two) if dials else (two, one)
    await dialler.dial(address_of(target))
    await until(lambda: calls[0].disconnected)
    await parted(one, two)
    assert calls[0].connected == calls[0].disconnected == [two.peer_id]
    assert calls[1].connected == calls[1].disconnected


# Properties of a connection


async def test_a_connection_says_who_where_and_since_when(world: World) -> None:
    one, two = await world.pair()
    await until(
        lambda: all(h.connections()[0].agent and h.connections()[0].latency_ms for h in (one, two))
    )
    (mine,), (theirs,) = one.connections(), two.connections()
    assert (mine.peer_id, mine.direction) == (two.peer_id, Direction.OUT)
    assert (theirs.peer_id, theirs.direction) == (one.peer_id, Direction.IN)
    assert f"{mine.address}/p2p/{two.peer_id}" == address_of(two)
    assert parse_transport(theirs.address) == theirs.address
    for row in (mine, theirs):
        assert 0 < (row.latency_ms or math.nan) < 5000
        assert 0 <= row.opened_s < 20
    await until(lambda: one.connections()[0].opened_s > mine.opened_s)


async def test_a_peer_says_where_it_listens_and_what_it_sees(world: World) -> None:
    one, two = await world.hosts(2)
    for host in (one, two):
        assert one.peer_addresses(host.peer_id) == ()
        assert one.observed_address(host.peer_id) == ""
        assert one.remote_address(host.peer_id) == ""
    await connect(one, two)
    for here, there in ((one, two), (two, one)):
        await until(lambda h=here, t=there: h.peer_addresses(t.peer_id))
        listens = tuple(parse_peer_address(a).transport for a in there.listen_addrs())
        assert here.peer_addresses(there.peer_id) == listens
        seen = here.observed_address(there.peer_id)
        assert parse_transport(seen) == seen
        assert here.remote_address(there.peer_id) == here.connections()[0].address
    await one.disconnect(two.peer_id)
    assert one.peer_addresses(two.peer_id) == ()
    assert one.observed_address(two.peer_id) == ""


# Access


async def test_a_ban_cuts_off_and_refuses_both_ways(world: World) -> None:
    one, two, three = await world.hosts(3)
    await connect(two, one)
    await connect(three, one)
    one.ban(two.peer_id, seconds=math.inf)
    await until(lambda: not one.is_connected(two.peer_id))
    await parted(two)
    assert one.is_banned(two.peer_id)
    assert not two.is_banned(one.peer_id)
    await is_refused(two, one)
    await is_refused(one, two)
    assert one.connected_peers() == {three.peer_id}, "no other peer is disconnected"
    one.unban(two.peer_id)
    assert not one.is_banned(two.peer_id)
    await connect(two, one)


async def test_a_longer_ban_stays_and_any_ban_ends(world: World) -> None:
    one, two, three = await world.hosts(3)
    one.ban(two.peer_id, seconds=3600)
    one.ban(two.peer_id, seconds=0.3)
    one.ban(three.peer_id, seconds=0.1)
    one.ban(three.peer_id, seconds=0.3)
    await is_refused(three, one)
    began = trio.current_time()
    await until(lambda: not one.is_banned(three.peer_id))
    assert trio.current_time() - began < 5
    await connect(three, one)
    assert one.is_banned(two.peer_id)
    await is_refused(two, one)


async def test_a_list_of_peers_cuts_off_and_refuses_the_others(world: World) -> None:
    one, friend, stranger = await world.hosts(3)
    assert one.is_admitted(stranger.peer_id)
    await connect(friend, one)
    await connect(stranger, one)
    one.admit_only([friend.peer_id])
    await until(lambda: one.connected_peers() == {friend.peer_id})
    assert one.is_admitted(friend.peer_id)
    assert not one.is_admitted(stranger.peer_id)
    await is_refused(stranger, one)
    await is_refused(one, stranger)
    one.admit_only([])
    await parted(one, friend)
    one.admit_only(None)
    assert one.is_admitted(stranger.peer_id)
    await connect(stranger, one)
    await connect(one, friend)


async def test_no_peer_was_refused_before_a_handshake(world: World) -> None:
    one, _ = await world.pair()
    assert one.refused_connections() == {}

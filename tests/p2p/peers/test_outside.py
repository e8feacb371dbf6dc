"""How peers look from each other, and libp2p pings: real hosts on loopback."""

from __future__ import annotations

import trio

from shoal_p2p.peers.outside import ReachServer, ask_outside, wall_ms
from shoal_wire.reach import (
    ReachReply,
    decode_reach_reply,
    encode_reach_reply,
)
from tests.support.network import port_of
from tests.support.nodes import open_test_host, until


async def test_a_peer_tells_address_clock_and_open_ports() -> None:
    async with open_test_host() as one, open_test_host() as two:
        ReachServer(host=two, wall_ms=lambda: wall_ms() + 60_000).serve()
        await one.dial(two.listen_addrs()[0])
        listener = await trio.open_tcp_listeners(0, host="127.0.0.1")
        closed = listener[0].socket.getsockname()[1]
        await listener[0].aclose()
        seen = await ask_outside(one, two.peer_id, ports=(port_of(one), closed))
        assert seen is not None
        assert seen.dialled
        assert seen.open_ports == (port_of(one),)
        assert seen.observed.startswith("/ip4/127.0.0.1/tcp/")
        assert 50_000 < seen.clock_ahead_ms <= 60_000
        await until(lambda: one.observed_address(two.peer_id))
        assert one.observed_address(two.peer_id) == seen.observed, "identify says the same"


async def test_a_peer_dials_no_other_twice_in_a_row() -> None:
    async with open_test_host() as one, open_test_host() as two:
        ReachServer(host=two).serve()
        await one.dial(two.listen_addrs()[0])
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        first = await ask_outside(one, two.peer_id, ports=(port,))
        with trio.fail_after(5):
            await listener.accept()
        again = await ask_outside(one, two.peer_id, ports=(port,))
        other = await ask_outside(one, two.peer_id, ports=(port_of(one),))
        assert first is not None
        assert again is not None
        assert other is not None
        assert (first.dialled, again.dialled, other.dialled) == (True, True, False)
        assert first.open_ports == again.open_ports == (port,)
        assert other.open_ports == ()
        with trio.move_on_after(0.2) as scope:
            await listener.accept()
        assert scope.cancelled_caught, "the same question is answered from memory"
        await listener.aclose()


async def test_where_a_peer_got_in_it_tells_who_asks_it_for_peers() -> None:
    """A router's port may lead to a node long after the node announced its addresses."""
    async with open_test_host() as one, open_test_host() as two:
        ReachServer(host=two).serve()
        await one.dial(two.listen_addrs()[0])
        await until(lambda: two.peer_addresses(one.peer_id))
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        await ask_outside(one, two.peer_id, ports=(port, 1))
        addresses = two.peer_addresses(one.peer_id)
        assert addresses == tuple(f"/ip4/127.0.0.1/tcp/{p}" for p in (port, port_of(one)))
        await listener.aclose()


async def test_a_peer_without_the_protocol_says_nothing() -> None:
    async with open_test_host() as one, open_test_host() as two:
        await one.dial(two.listen_addrs()[0])
        assert await ask_outside(one, two.peer_id) is None


def test_replies_round_trip_and_their_text_is_cleaned() -> None:
    reply = ReachReply(observed="/ip4/1.2.3.4/tcp/5", wall_ms=7, open_ports=(5,), dialled=True)
    assert decode_reach_reply(encode_reach_reply(reply)) == reply
    evil = ReachReply(observed="\x1b[2J", wall_ms=7, open_ports=(), dialled=False)
    assert decode_reach_reply(encode_reach_reply(evil)).observed == ""

"""Attacks on protocol negotiation, and on half-closed streams."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import trio
from libp2p.identity.identify.identify import ID as IDENTIFY_ID
from libp2p.io.trio import TrioTCPStream
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.relay.circuit_v2.pb import circuit_pb2 as pb
from libp2p.stream_muxer.yamux.yamux import (
    FLAG_FIN,
    FLAG_RST,
    TYPE_DATA,
    TYPE_WINDOW_UPDATE,
)

from shoal_p2p.net.circuit import HOP, read_hop
from shoal_p2p.net.private import ClearStream
from shoal_p2p.net.streams import write_message
from shoal_wire.limits import MANIFEST_PROTOCOL, PEERS_PROTOCOL
from tests.redteam.wire_peer import PATIENCE_S, WireAttacker, frame, hello, opening
from tests.support.network import port_of

_ASKED = (IDENTIFY_ID, MANIFEST_PROTOCOL, PEERS_PROTOCOL)


def _talk(rng: random.Random) -> bytes:
    """Return a negotiation: endless, malformed, or eventually valid."""
    wrong = [f"/unknown/{n}" for n in range(rng.choice((3, 14, 40)))]
    right = rng.choice(_ASKED)
    kinds = (
        hello(*wrong, right) + b"\0\0\0\0",
        hello(*["ls"] * 30),
        hello("na", "", right),
        hello()[:-1] + b"\r\n",
        b"\x80\x80\x80\x80\x80",
        b"\xff\x7f" + b"/" * 20_000,
        hello(right) * 20,
    )
    return rng.choice(kinds)


async def slow_talk(attacker: WireAttacker, rng: random.Random) -> None:
    """Negotiate protocols on many streams, all at once or by the byte."""
    payload, ids = _talk(rng), attacker.ids(rng.choice((1, 60)))
    if rng.random() < 0.5:
        await attacker.write([opening(one, payload) for one in ids])
        return
    await attacker.write([opening(one, b"") for one in ids])
    for at in range(12):
        await attacker.write([frame(TYPE_DATA, 0, one, 1, payload[at : at + 1]) for one in ids])
        await trio.sleep(rng.choice((0.0, 0.1)))


async def half_closed(attacker: WireAttacker, rng: random.Random) -> None:
    """Requests on streams whose write side is closed, with more bytes, in any order."""
    body = hello(rng.choice(_ASKED)) + b"\0\0\0\0"
    ids = attacker.ids(rng.choice((2, 50)))
    late = [
        frame(TYPE_DATA, rng.choice((0, FLAG_FIN, FLAG_RST)), one, 4, b"late")
        if rng.random() < 0.5
        else frame(
            TYPE_WINDOW_UPDATE, rng.choice((0, FLAG_FIN, FLAG_RST)), one, rng.choice((0, 1 << 18))
        )
        for one in ids * 4
    ]
    rng.shuffle(late)
    await attacker.write([opening(one, body, FLAG_FIN) for one in ids])
    await trio.sleep(rng.choice((0.0, 0.2)))
    await attacker.write(late)


async def half_upgraded(attacker: WireAttacker, rng: random.Random) -> None:
    """Connections that authenticate and then negotiate no muxer: silence, garbage, no end."""
    payload = rng.choice((b"", _talk(rng), hello("/mplex/6.7.0", "/nothing"), hello()))
    async with trio.open_nursery() as nursery:
        for _ in range(rng.choice((1, 10))):
            nursery.start_soon(_prove, attacker, payload)


async def _prove(attacker: WireAttacker, payload: bytes) -> None:
    library: Any = attacker.second.libp2p_host
    with suppress(Exception), trio.move_on_after(PATIENCE_S):
        tcp = await trio.open_tcp_stream("127.0.0.1", port_of(attacker.victim.node.member.host))  # type: ignore[arg-type]
        async with tcp:
            raw = RawConnection(ClearStream(TrioTCPStream(tcp)), True)
            upgrader = library.get_network().upgrader
            secured = await upgrader.upgrade_security(
                raw, True, ID.from_base58(attacker.victim.peer_id)
            )
            for at in range(0, len(payload), 500):
                await secured.write(payload[at : at + 500])
            await trio.sleep(PATIENCE_S)


async def renewals(attacker: WireAttacker, rng: random.Random) -> None:
    """Repeated relay reservations of two names in turn, with and without disconnecting."""
    ask = pb.HopMessage(type=pb.HopMessage.RESERVE)
    goes = rng.random() < 0.3
    with trio.move_on_after(3 * PATIENCE_S):
        for number in range(rng.choice((4, 60))):
            host = (attacker.host, attacker.second)[number % 2]
            await attacker.meet(host=host, reconnect=goes)
            stream = await attacker.open(HOP, host)
            await write_message(stream, ask)
            await read_hop(stream)
            await (stream.close() if rng.random() < 0.5 else stream.reset())

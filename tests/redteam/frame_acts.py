"""Attacks below all protocols: muxer frames, Noise messages, TCP."""

from __future__ import annotations

import random
from contextlib import suppress

import trio
from libp2p.identity.identify.identify import ID as IDENTIFY_ID
from libp2p.stream_muxer.yamux.yamux import (
    FLAG_ACK,
    FLAG_FIN,
    FLAG_RST,
    FLAG_SYN,
    TYPE_DATA,
    TYPE_GO_AWAY,
    TYPE_PING,
    TYPE_WINDOW_UPDATE,
)

from shoal_p2p.net.windows import WINDOW_BYTES
from shoal_wire.limits import MANIFEST_PROTOCOL, PEERS_PROTOCOL
from tests.redteam.peer import MESHSUB
from tests.redteam.wire_peer import PATIENCE_S, WireAttacker, frame, hello, opening
from tests.support.network import port_of

ASKED = (IDENTIFY_ID, MANIFEST_PROTOCOL, PEERS_PROTOCOL, MESHSUB[1], "/unknown/1", "\x1b" * 40)
FLAGS = (0, FLAG_SYN, FLAG_ACK, FLAG_FIN, FLAG_RST, FLAG_SYN | FLAG_FIN, FLAG_SYN | FLAG_RST)


async def stream_flood(attacker: WireAttacker, rng: random.Random) -> None:
    """Streams that negotiate a protocol, half of one, or nothing."""
    message = hello(rng.choice(ASKED))
    body = rng.choice((b"", message[: rng.randrange(len(message))], message, message + b"\0\0\0\0"))
    await attacker.write(attacker.request_frames(rng.choice((70, 500)), body))


async def half_open(attacker: WireAttacker, rng: random.Random) -> None:
    """Requests that get replies, on streams that it never closes."""
    others = rng.choices((IDENTIFY_ID, MANIFEST_PROTOCOL, PEERS_PROTOCOL), k=rng.choice((0, 4)))
    for protocol in (*[IDENTIFY_ID] * 4, *others):
        await attacker.write(attacker.request_frames(40, hello(protocol) + b"\0\0\0\0"))
        await trio.sleep(0.05)


async def resets(attacker: WireAttacker, rng: random.Random) -> None:
    """Streams that are reset as soon as they open, repeatedly."""
    body = hello(rng.choice(ASKED))
    flags = rng.choice((FLAG_RST, FLAG_FIN, FLAG_FIN | FLAG_RST))
    ids, early = attacker.ids(rng.choice((20, 400))), rng.choice((0, flags))
    await attacker.write([opening(one, body, early) for one in ids])
    await attacker.write([frame(TYPE_WINDOW_UPDATE, flags, one, 0) for one in ids] * 2)


async def strange_frames(attacker: WireAttacker, rng: random.Random) -> None:
    """Frames of any type, flags, stream id and length."""
    frames = []
    for _ in range(rng.choice((3, 60))):
        kind = rng.choice((TYPE_DATA, TYPE_DATA, TYPE_WINDOW_UPDATE, TYPE_PING, rng.randrange(256)))
        length = rng.choice((0, 1, 500, WINDOW_BYTES, WINDOW_BYTES + 1, (1 << 32) - 1))
        body = rng.randbytes(min(length, 4096)) if kind == TYPE_DATA else b""
        stream_id = rng.choice((0, 1, 2, 3, rng.choice(attacker.ids(1)), (1 << 32) - 1))
        frames.append(frame(kind, rng.choice((*FLAGS, 0xFFFF)), stream_id, length, body))
    await attacker.write(frames)


async def windows(attacker: WireAttacker, rng: random.Random) -> None:
    """Exceeded windows, and window updates by the byte or without end."""
    size = rng.choice((1000, WINDOW_BYTES // 4))
    ids = attacker.ids(rng.choice((1, 60)))
    opened = [opening(one, hello(MESHSUB[1])) for one in ids]
    grants = [
        frame(TYPE_WINDOW_UPDATE, 0, one, rng.choice((0, 1, (1 << 32) - 1))) for one in ids
    ] * rng.choice((1, 30))
    data = [frame(TYPE_DATA, 0, one, size, bytes(size)) for one in ids]
    await attacker.write([*opened, *rng.choice((grants, data, data * 6, grants + data))])


async def pings(attacker: WireAttacker, rng: random.Random) -> None:
    """Pings, and replies that were not requested, by the thousand."""
    flags = rng.choice((FLAG_SYN, FLAG_ACK, 0, FLAG_SYN | FLAG_ACK))
    pack = b"".join(frame(TYPE_PING, flags, 0, rng.getrandbits(32)) for _ in range(500))
    await attacker.write([pack] * rng.choice((1, 20)))


async def go_away(attacker: WireAttacker, rng: random.Random) -> None:
    """GO_AWAY, followed by more frames."""
    message = hello(rng.choice(ASKED))
    await attacker.write(
        [frame(TYPE_GO_AWAY, 0, 0, rng.randrange(4)), *attacker.request_frames(5, message)]
    )


async def garbage_below(attacker: WireAttacker, rng: random.Random) -> None:
    """Bytes below the encryption: not Noise, half a message, a length without a message."""
    data = (rng.randbytes(rng.choice((1, 500, 70_000))), b"\xff\xff", b"\x00\x10" + bytes(15))
    await attacker.write_below(rng.choice(data))


async def empty_messages(attacker: WireAttacker, rng: random.Random) -> None:
    """Thousands of empty Noise messages, and frames split into single bytes."""
    muxed = await attacker.muxed()
    channel = muxed._below
    ping = frame(TYPE_PING, FLAG_SYN, 0, 7) * 40
    pieces = rng.choice(([b""] * 5000, [ping[at : at + 1] for at in range(len(ping))]))
    sealed = [channel._noise.encrypt(piece) for piece in pieces]
    await attacker.write_below(b"".join(len(one).to_bytes(2, "big") + one for one in sealed))


async def strangers_on_tcp(attacker: WireAttacker, rng: random.Random) -> None:
    """Connections without a handshake: silence, garbage, another protocol, half a handshake."""
    noise = hello("/noise")
    kinds = (b"", rng.randbytes(300), hello("/tls/1.0.0"), noise, noise + b"\x00\x20" + bytes(32))
    async with trio.open_nursery() as nursery:
        for _ in range(rng.choice((1, 10))):
            nursery.start_soon(
                _connect_and_write, attacker, rng.choice((*kinds, b"GET / HTTP/1.1\r\n\r\n"))
            )


async def _connect_and_write(attacker: WireAttacker, data: bytes) -> None:
    with suppress(OSError, trio.BrokenResourceError), trio.move_on_after(PATIENCE_S):
        tcp = await trio.open_tcp_stream("127.0.0.1", port_of(attacker.victim.node.member.host))  # type: ignore[arg-type]
        async with tcp:
            if data:
                await tcp.send_all(data)
            while await tcp.receive_some(4096):
                pass

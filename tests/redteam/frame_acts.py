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
from tests.redteam.wire_peer import PATIENCE_S, WireRed, frame, hello, opening
from tests.support.network import port_of

ASKED = (IDENTIFY_ID, MANIFEST_PROTOCOL, PEERS_PROTOCOL, MESHSUB[1], "/nobody/1", "\x1b" * 40)
FLAGS = (0, FLAG_SYN, FLAG_ACK, FLAG_FIN, FLAG_RST, FLAG_SYN | FLAG_FIN, FLAG_SYN | FLAG_RST)


async def stream_flood(red: WireRed, rng: random.Random) -> None:
    """Streams that negotiate a protocol, half of one, or nothing."""
    said = hello(rng.choice(ASKED))
    body = rng.choice((b"", said[: rng.randrange(len(said))], said, said + b"\0\0\0\0"))
    await red.write(red.asking(rng.choice((70, 500)), body))


async def half_open(red: WireRed, rng: random.Random) -> None:
    """Requests that get replies, on streams that it never closes."""
    others = rng.choices((IDENTIFY_ID, MANIFEST_PROTOCOL, PEERS_PROTOCOL), k=rng.choice((0, 4)))
    for protocol in (*[IDENTIFY_ID] * 4, *others):
        await red.write(red.asking(40, hello(protocol) + b"\0\0\0\0"))
        await trio.sleep(0.05)


async def resets(red: WireRed, rng: random.Random) -> None:
    """Streams that are reset as soon as they open, repeatedly."""
    body = hello(rng.choice(ASKED))
    flags = rng.choice((FLAG_RST, FLAG_FIN, FLAG_FIN | FLAG_RST))
    ids, early = red.ids(rng.choice((20, 400))), rng.choice((0, flags))
    await red.write([opening(one, body, early) for one in ids])
    await red.write([frame(TYPE_WINDOW_UPDATE, flags, one, 0) for one in ids] * 2)


async def strange_frames(red: WireRed, rng: random.Random) -> None:
    """Frames of any type, flags, stream id and length."""
    frames = []
    for _ in range(rng.choice((3, 60))):
        kind = rng.choice((TYPE_DATA, TYPE_DATA, TYPE_WINDOW_UPDATE, TYPE_PING, rng.randrange(256)))
        length = rng.choice((0, 1, 500, WINDOW_BYTES, WINDOW_BYTES + 1, (1 << 32) - 1))
        body = rng.randbytes(min(length, 4096)) if kind == TYPE_DATA else b""
        stream_id = rng.choice((0, 1, 2, 3, rng.choice(red.ids(1)), (1 << 32) - 1))
        frames.append(frame(kind, rng.choice((*FLAGS, 0xFFFF)), stream_id, length, body))
    await red.write(frames)


async def windows(red: WireRed, rng: random.Random) -> None:
    """Exceeded windows, and window updates by the byte or without end."""
    size = rng.choice((1000, WINDOW_BYTES // 4))
    ids = red.ids(rng.choice((1, 60)))
    opened = [opening(one, hello(MESHSUB[1])) for one in ids]
    grants = [
        frame(TYPE_WINDOW_UPDATE, 0, one, rng.choice((0, 1, (1 << 32) - 1))) for one in ids
    ] * rng.choice((1, 30))
    data = [frame(TYPE_DATA, 0, one, size, bytes(size)) for one in ids]
    await red.write([*opened, *rng.choice((grants, data, data * 6, grants + data))])


async def pings(red: WireRed, rng: random.Random) -> None:
    """Pings, and replies that were not requested, by the thousand."""
    flags = rng.choice((FLAG_SYN, FLAG_ACK, 0, FLAG_SYN | FLAG_ACK))
    pack = b"".join(frame(TYPE_PING, flags, 0, rng.getrandbits(32)) for _ in range(500))
    await red.write([pack] * rng.choice((1, 20)))


async def go_away(red: WireRed, rng: random.Random) -> None:
    """GO_AWAY, followed by more frames."""
    said = hello(rng.choice(ASKED))
    await red.write([frame(TYPE_GO_AWAY, 0, 0, rng.randrange(4)), *red.asking(5, said)])


async def garbage_below(red: WireRed, rng: random.Random) -> None:
    """Bytes below the encryption: not Noise, half a message, a length without a message."""
    data = (rng.randbytes(rng.choice((1, 500, 70_000))), b"\xff\xff", b"\x00\x10" + bytes(15))
    await red.write_below(rng.choice(data))


async def empty_messages(red: WireRed, rng: random.Random) -> None:
    """Thousands of empty Noise messages, and frames split into single bytes."""
    muxed = await red.muxed()
    channel = muxed._below
    ping = frame(TYPE_PING, FLAG_SYN, 0, 7) * 40
    pieces = rng.choice(([b""] * 5000, [ping[at : at + 1] for at in range(len(ping))]))
    sealed = [channel._noise.encrypt(piece) for piece in pieces]
    await red.write_below(b"".join(len(one).to_bytes(2, "big") + one for one in sealed))


async def strangers_on_tcp(red: WireRed, rng: random.Random) -> None:
    """Connections without a handshake: silence, garbage, another protocol, half a handshake."""
    noise = hello("/noise")
    kinds = (b"", rng.randbytes(300), hello("/tls/1.0.0"), noise, noise + b"\x00\x20" + bytes(32))
    async with trio.open_nursery() as nursery:
        for _ in range(rng.choice((1, 10))):
            nursery.start_soon(_knock, red, rng.choice((*kinds, b"GET / HTTP/1.1\r\n\r\n")))


async def _knock(red: WireRed, data: bytes) -> None:
    with suppress(OSError, trio.BrokenResourceError), trio.move_on_after(PATIENCE_S):
        tcp = await trio.open_tcp_stream("127.0.0.1", port_of(red.victim.node.member.host))  # type: ignore[arg-type]
        async with tcp:
            if data:
                await tcp.send_all(data)
            while await tcp.receive_some(4096):
                pass

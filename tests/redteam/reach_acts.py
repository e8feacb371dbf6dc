"""Attacks on reachability: identify, relaying on both sides, and hole punching."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.identity.identify.identify import ID as IDENTIFY_ID
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.identity.identify_push.identify_push import ID_PUSH as IDENTIFY_PUSH_ID
from libp2p.peer.id import ID
from libp2p.relay.circuit_v2.pb import circuit_pb2 as pb
from libp2p.relay.circuit_v2.pb.dcutr_pb2 import HolePunch
from libp2p.utils.varint import encode_varint_prefixed
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_p2p.net.circuit import HOP, STOP, read_hop, read_stop
from shoal_p2p.net.dcutr import DCUTR
from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.net.relay_server import RelayServer
from shoal_p2p.net.streams import reset_stream, write_message
from shoal_p2p.peers.discovery import Discovery, DiscoverySettings
from shoal_wire.invite import Invite, decode_invite, encode_invite
from shoal_wire.types import Digest
from tests.fuzz.mutate import mutate
from tests.redteam.wire_peer import PATIENCE_S, WireAttacker, hello
from tests.support.doubles.identities import fresh_identity
from tests.support.nodes import until

Handler = Callable[[INetStream], Awaitable[None]]
_JUNK = b"x" * 60_000


def _serve(host: Libp2pHost, protocol: str, handler: Handler) -> None:
    async def contained(stream: INetStream) -> None:
        with suppress(Exception), trio.move_on_after(4 * PATIENCE_S):
            await handler(stream)
        await reset_stream(stream)

    host.libp2p_host.set_stream_handler(TProtocol(protocol), contained)


def _addresses(attacker: WireAttacker, rng: random.Random) -> list[bytes]:
    """False addresses: of third parties, of the victim, unused, invalid, or many."""
    own = attacker.victim.address.partition("/p2p/")[0]
    texts = (
        attacker.lure,
        attacker.lure,
        own,
        "/ip4/0.0.0.0/tcp/1",
        "/dns4/localhost/tcp/22",
        "/ip6/::1/tcp/9",
    )
    found = [bytes(Multiaddr(text).to_bytes()) for text in texts]
    circuit = bytes(
        Multiaddr(f"{attacker.lure}/p2p/{attacker.host.peer_id}/p2p-circuit").to_bytes()
    )
    junk = [rng.randbytes(rng.choice((0, 3, 900))), mutate(rng, found), circuit]
    return [rng.choice((*found, *junk)) for _ in range(rng.choice((1, 4, 200)))]


# Invitations


async def invites(attacker: WireAttacker, rng: random.Random) -> None:
    """A newcomer reads an invitation that names a third party under as many names as it holds."""
    names = [fresh_identity().peer_id for _ in range(rng.choice((1, 4, 8)))]
    port = attacker.invited_to.rpartition("/")[2]
    ways = (attacker.invited_to, f"/dns4/localhost/tcp/{port}", f"/dns/localhost/tcp/{port}")
    listed = tuple(f"{rng.choice(ways)}/p2p/{rng.choice(names)}" for _ in range(8))
    invite = decode_invite(encode_invite(Invite(swarm=Digest(bytes(32)), addresses=listed)))
    discovery = Discovery(
        host=attacker.second,
        address_policy=attacker.address_policy,
        bootstrap=invite.addresses,
        settings=DiscoverySettings(invited=frozenset(invite.addresses)),
        rng=rng,
    )
    with trio.move_on_after(rng.choice((1.0, 6.0))):
        await discovery.run()


# Identify


async def lies(attacker: WireAttacker, rng: random.Random) -> None:
    """A different identify reply each time: too long, another peer's, not text, slow, or none."""
    message = Identify(
        agent_version=rng.choice(("", "\x1b[2J" * 9, "a" * 9000)),
        protocol_version="\x1b",
        public_key=rng.randbytes(36),
        listen_addrs=_addresses(attacker, rng),
        observed_addr=_addresses(attacker, rng)[0],
        protocols=["/p" * rng.choice((1, 400))] * rng.choice((1, 300)),
        signedPeerRecord=rng.randbytes(rng.choice((0, 2000))),
    )
    whole = encode_varint_prefixed(message.SerializeToString())
    payload = rng.choice((whole, whole, mutate(rng, [whole]), b"\xff" * 9 + b"\x01", whole[:-1]))
    by_the_byte = rng.random() < 0.2

    async def tell(stream: INetStream) -> None:
        for piece in [payload[at : at + 1] for at in range(40)] if by_the_byte else [payload]:
            await stream.write(piece)
            await trio.sleep(0.05 if by_the_byte else 0.0)
        if rng.random() < 0.5:
            await stream.close()
        await trio.sleep(PATIENCE_S)

    _serve(attacker.host, IDENTIFY_ID, tell)
    for _ in range(rng.choice((1, 4))):
        await attacker.meet(reconnect=True)
        await trio.sleep(0.05)


async def pushes(attacker: WireAttacker, rng: random.Random) -> None:
    """Identify pushes that were not requested."""
    payload = Identify(protocols=["/p/" + "x" * 400] * 40, listen_addrs=_addresses(attacker, rng))
    whole = encode_varint_prefixed(payload.SerializeToString())
    body = hello(IDENTIFY_PUSH_ID) + whole
    await attacker.write(attacker.request_frames(rng.choice((1, 60)), body[:60_000]))


# As a relay's client


def _hop(attacker: WireAttacker, rng: random.Random) -> bytes:
    ids = (attacker.target.to_bytes(), attacker.host.libp2p_host.get_id().to_bytes(), b"", b"\0\1x")
    peer = pb.PeerId(
        id=rng.choice((*ids, rng.randbytes(3000))), addrs=_addresses(attacker, rng)[:3]
    )
    kind = rng.choice((pb.HopMessage.RESERVE, pb.HopMessage.CONNECT, pb.HopMessage.STATUS))
    message = pb.HopMessage(type=kind, peer=peer, status=pb.Status.OK)
    whole: bytes = encode_varint_prefixed(message.SerializeToString())
    return rng.choice((whole, whole, mutate(rng, [whole]), whole[:2], whole * 3))


async def hops(attacker: WireAttacker, rng: random.Random) -> None:
    """Reservations and circuits requested immediately, and many at once."""
    if rng.random() < 0.5:
        await attacker.meet(reconnect=True)
    count = rng.choice((1, 40))
    await attacker.write(
        [
            one
            for _ in range(count)
            for one in attacker.request_frames(1, hello(HOP) + _hop(attacker, rng))
        ]
    )


async def relayed_flood(attacker: WireAttacker, rng: random.Random) -> None:
    """A circuit between two attackers through the victim: never read, or at full speed."""
    reads = rng.random() < 0.5

    async def stop(stream: INetStream) -> None:
        await read_stop(stream)
        status = rng.choice((pb.Status.OK, pb.Status.OK, pb.Status.CONNECTION_FAILED))
        await write_message(stream, pb.StopMessage(type=pb.StopMessage.STATUS, status=status))
        while reads and await stream.read(1 << 16):
            await stream.write(_JUNK)
        await trio.sleep(PATIENCE_S)

    _serve(attacker.second, STOP, stop)
    await attacker.meet(host=attacker.second)
    with trio.move_on_after(2 * PATIENCE_S):
        place = await attacker.open(HOP, attacker.second)
        await write_message(place, pb.HopMessage(type=pb.HopMessage.RESERVE))
        await read_hop(place)
        peer = pb.PeerId(id=attacker.second.libp2p_host.get_id().to_bytes())
        request = encode_varint_prefixed(
            pb.HopMessage(type=pb.HopMessage.CONNECT, peer=peer).SerializeToString()
        )
        await attacker.meet()
        for _ in range(rng.choice((1, 6))):
            await attacker.write_slowly(HOP, [request, *[_JUNK] * rng.choice((1, 30))], rng)


# As a relay


async def stops(attacker: WireAttacker, rng: random.Random) -> None:
    """Circuits from relays and non-relays: garbage, silence, or half a handshake."""
    peer = pb.PeerId(
        id=rng.choice((ID.from_base58(attacker.second.peer_id).to_bytes(), b"\0", b""))
    )
    message = pb.StopMessage(type=pb.StopMessage.CONNECT, peer=peer)
    whole: bytes = encode_varint_prefixed(message.SerializeToString())
    inside = rng.choice((b"", rng.randbytes(3000), hello("/noise"), hello("/noise") + b"\0\x20ab"))
    payload = rng.choice((whole, whole, mutate(rng, [whole]))) + inside
    await attacker.write(attacker.request_frames(rng.choice((1, 30)), hello(STOP) + payload))


async def false_relay(attacker: WireAttacker, rng: random.Random) -> None:
    """Reservations with other peers' addresses and vouchers, long expired or endless."""
    place = pb.Reservation(
        expire=rng.choice((0, 1, (1 << 63), (1 << 64) - 1)),
        addrs=_addresses(attacker, rng),
        voucher=rng.randbytes(rng.choice((0, 200))),
    )
    status = rng.choice((pb.Status.OK, pb.Status.OK, pb.Status.ValueType(77)))
    answer = pb.HopMessage(type=pb.HopMessage.STATUS, status=status, reservation=place)
    whole = encode_varint_prefixed(answer.SerializeToString())
    payload = rng.choice((whole, whole, mutate(rng, [whole]), b""))

    async def hop(stream: INetStream) -> None:
        await read_hop(stream)
        await stream.write(payload)
        await trio.sleep(PATIENCE_S)

    _serve(attacker.host, HOP, hop)
    await attacker.meet(reconnect=True)
    await trio.sleep(rng.choice((0.2, 1.5)))  # the victim requests once a second
    await stops(attacker, rng)


# Over a circuit


async def punches(attacker: WireAttacker, rng: random.Random) -> None:
    """Hole-punching messages over its own circuit: in any order, with any peer's addresses."""
    RelayServer(attacker.host).serve()
    _serve(attacker.second, DCUTR, lambda stream: _talk(attacker, rng, stream))
    with trio.move_on_after(3 * PATIENCE_S):
        await attacker.meet(reconnect=True)
        attacker.second.abort(attacker.victim.peer_id)
        await _until_reserved(attacker)
        at = attacker.host.listen_addrs()[0]
        await attacker.second.dial(
            f"{at}/p2p-circuit/p2p/{attacker.victim.peer_id}", timeout=2 * PATIENCE_S
        )
        for _ in range(rng.choice((1, 12))):
            payload = [_punch(attacker, rng) for _ in range(rng.choice((1, 2, 3)))]
            await attacker.write_slowly(DCUTR, payload, rng, attacker.second)
        await trio.sleep(2.2)  # until the victim initiates


async def _until_reserved(attacker: WireAttacker) -> None:
    node: Any = attacker.victim.node
    await until(lambda: attacker.host.peer_id in node.peer.relays.relays)


async def _talk(attacker: WireAttacker, rng: random.Random, stream: INetStream) -> None:
    for _ in range(rng.choice((0, 1, 2))):
        await stream.write(_punch(attacker, rng))
    await trio.sleep(PATIENCE_S)


def _punch(attacker: WireAttacker, rng: random.Random) -> bytes:
    kinds: Sequence[Any] = (HolePunch.CONNECT, HolePunch.CONNECT, HolePunch.SYNC)
    message = HolePunch(type=rng.choice(kinds), ObsAddrs=_addresses(attacker, rng))
    whole: bytes = encode_varint_prefixed(message.SerializeToString())
    return rng.choice((whole, whole, mutate(rng, [whole]), b"\xff\xff\x7f"))

"""Hostile control messages of gossip, and bytes that are not gossip."""

from __future__ import annotations

import random

import trio
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils.varint import encode_uvarint

from shoal_p2p.gossip.codec import encode_frame
from tests.fuzz.mutate import mutate
from tests.redteam.peer import AttackerPeer


def _topic(attacker: AttackerPeer, rng: random.Random) -> str:
    return rng.choice(
        (*attacker.world.manifest.topics(), *attacker.world.manifest.topics(), "/unknown", "")
    )


def _ids(attacker: AttackerPeer, rng: random.Random) -> list[bytes]:
    """Return ids of messages that exist, existed, or never will."""
    count = rng.choice((1, 20, 500, 5000))
    made = [rng.randbytes(rng.choice((0, 8, 46, 46, 46, 300))) for _ in range(count // 2)]
    kept = list(attacker.captured.ids)
    return made + [rng.choice(kept) for _ in range(count - len(made)) if kept]


def _control(**parts: object) -> rpc_pb2.RPC:
    return rpc_pb2.RPC(control=rpc_pb2.ControlMessage(**parts))  # type: ignore[arg-type]


async def offers(attacker: AttackerPeer, rng: random.Random) -> None:
    """IHAVE of ids that it has, has not, or that do not exist."""
    rpcs = [
        _control(
            ihave=[
                rpc_pb2.ControlIHave(topicID=_topic(attacker, rng), messageIDs=_ids(attacker, rng))
            ]
            * rng.choice((1, 1, 80))
        )
        for _ in range(rng.choice((1, 10)))
    ]
    await attacker.say(attacker.targets(rng), *[rpc for rpc in rpcs if rpc.ByteSize() < 1 << 20])


async def first_offers(attacker: AttackerPeer, rng: random.Random) -> None:
    """Advertise just received ids to all, before other peers do, and never send the messages."""
    offered: set[bytes] = set()
    for _ in range(rng.choice((5, 30))):
        news = [key for key in attacker.captured.ids if key not in offered]
        offered.update(news)
        for topic in attacker.world.manifest.topics() if news else ():
            offer = rpc_pb2.ControlIHave(topicID=topic, messageIDs=news)
            await attacker.say(sorted(attacker.host.connected_peers()), _control(ihave=[offer]))
        await trio.sleep(0.2)


async def wants(attacker: AttackerPeer, rng: random.Random) -> None:
    """Repeated IWANT of the same ids, and of unknown ones."""
    rpc = _control(iwant=[rpc_pb2.ControlIWant(messageIDs=_ids(attacker, rng))])
    await attacker.say(attacker.targets(rng), *[rpc] * rng.choice((1, 10, 60)))


async def grafts(attacker: AttackerPeer, rng: random.Random) -> None:
    """Alternating GRAFT and PRUNE, with zero and endless back-offs, and peers to exchange."""
    topic = _topic(attacker, rng)
    offered = rpc_pb2.PeerInfo(peerID=rng.randbytes(38), signedPeerRecord=rng.randbytes(99))
    parts = [
        _control(graft=[rpc_pb2.ControlGraft(topicID=topic)] * rng.choice((1, 100))),
        _control(
            prune=[
                rpc_pb2.ControlPrune(
                    topicID=topic,
                    backoff=rng.choice((0, 1, 60, 1 << 40, (1 << 64) - 1)),
                    peers=[offered] * rng.choice((0, 1, 40)),
                )
            ]
        ),
    ]
    for target in attacker.targets(rng):
        await attacker.say([target], *[rng.choice(parts) for _ in range(rng.choice((1, 2, 12)))])


async def unwanted(attacker: AttackerPeer, rng: random.Random) -> None:
    """IDONTWANT of everything."""
    rpc = _control(idontwant=[rpc_pb2.ControlIDontWant(messageIDs=_ids(attacker, rng))])
    await attacker.say(attacker.targets(rng), *[rpc] * rng.choice((1, 20)))


async def subscriptions(attacker: AttackerPeer, rng: random.Random) -> None:
    """Subscribe and unsubscribe, for existing and unknown topics."""

    def change() -> rpc_pb2.RPC.SubOpts:
        topic = rng.choice(
            (
                _topic(attacker, rng),
                _topic(attacker, rng),
                f"/t/{rng.randrange(9999)}",
                "\x1b",
                "t" * 300,
            )
        )
        return rpc_pb2.RPC.SubOpts(subscribe=rng.random() < 0.7, topicid=topic)

    rpcs = [
        rpc_pb2.RPC(subscriptions=[change() for _ in range(rng.choice((1, 3, 400)))])
        for _ in range(rng.choice((1, 20)))
    ]
    await attacker.say(attacker.targets(rng), *rpcs)


async def joins(attacker: AttackerPeer, rng: random.Random) -> None:
    """Behave like an honest peer: subscribe, and send GRAFT."""
    topics = attacker.world.manifest.topics()
    rpc = rpc_pb2.RPC(
        subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic) for topic in topics],
        control=rpc_pb2.ControlMessage(
            graft=[rpc_pb2.ControlGraft(topicID=topic) for topic in topics]
        ),
    )
    await attacker.say(sorted(attacker.host.connected_peers()), rpc)


async def everything(attacker: AttackerPeer, rng: random.Random) -> None:
    """All parts in one RPC."""
    ids, topic = _ids(attacker, rng)[:200], _topic(attacker, rng)
    rpc = rpc_pb2.RPC(
        publish=rng.sample(
            list(attacker.captured.messages), min(5, len(attacker.captured.messages))
        ),
        subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic)],
        control=rpc_pb2.ControlMessage(
            ihave=[rpc_pb2.ControlIHave(topicID=topic, messageIDs=ids)],
            iwant=[rpc_pb2.ControlIWant(messageIDs=ids)],
            graft=[rpc_pb2.ControlGraft(topicID=topic)],
            prune=[rpc_pb2.ControlPrune(topicID=topic)],
            idontwant=[rpc_pb2.ControlIDontWant(messageIDs=ids)],
        ),
    )
    await attacker.say(attacker.targets(rng), *[rpc] * rng.choice((1, 5)))


async def damage(attacker: AttackerPeer, rng: random.Random) -> None:
    """Frames with a few bytes replaced, moved or removed."""
    kept = list(attacker.captured.messages)
    rpc = rpc_pb2.RPC(publish=rng.sample(kept, min(2, len(kept))))
    rpc.control.ihave.add(topicID=_topic(attacker, rng), messageIDs=_ids(attacker, rng)[:5])
    body = mutate(rng, [rpc.SerializeToString()])
    for target in attacker.targets(rng):
        await attacker.write(target, encode_uvarint(len(body)) + body, reconnect=rng.random() < 0.3)


async def no_frame(attacker: AttackerPeer, rng: random.Random) -> None:
    """Invalid lengths, half a frame followed by silence, a thousand empty frames."""
    kinds = (
        b"\xff" * 9,
        encode_uvarint(1 << 30) + b"x",
        encode_uvarint(50_000) + rng.randbytes(100),
        encode_frame(rpc_pb2.RPC()) * 1000,
        b"\x80",
    )
    data = rng.choice(kinds)
    for target in attacker.targets(rng):
        await attacker.write(target, data, reconnect=rng.random() < 0.5)


async def streams(attacker: AttackerPeer, rng: random.Random) -> None:
    """Open one gossip stream after another."""
    for target in attacker.targets(rng):
        for _ in range(rng.choice((2, 20))):
            await attacker.write(target, encode_frame(rpc_pb2.RPC()), reconnect=True)


async def deafness(attacker: AttackerPeer, rng: random.Random) -> None:
    """Toggle reading: from now on it reads nothing, or reads again."""
    attacker.is_deaf = rng.random() < 0.7

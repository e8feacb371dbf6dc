"""Hostile control messages of gossip, and bytes that are not gossip."""

from __future__ import annotations

import random

import trio
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils.varint import encode_uvarint

from shoal_p2p.gossip.codec import encode_frame
from tests.fuzz.mutate import mutate
from tests.redteam.peer import Red


def _topic(red: Red, rng: random.Random) -> str:
    return rng.choice((*red.world.manifest.topics(), *red.world.manifest.topics(), "/nobody", ""))


def _ids(red: Red, rng: random.Random) -> list[bytes]:
    """Return ids of messages that exist, existed, or never will."""
    count = rng.choice((1, 20, 500, 5000))
    made = [rng.randbytes(rng.choice((0, 8, 46, 46, 46, 300))) for _ in range(count // 2)]
    kept = list(red.loot.ids)
    return made + [rng.choice(kept) for _ in range(count - len(made)) if kept]


def _control(**parts: object) -> rpc_pb2.RPC:
    return rpc_pb2.RPC(control=rpc_pb2.ControlMessage(**parts))  # type: ignore[arg-type]


async def offers(red: Red, rng: random.Random) -> None:
    """IHAVE of ids that it has, has not, or that do not exist."""
    rpcs = [
        _control(
            ihave=[rpc_pb2.ControlIHave(topicID=_topic(red, rng), messageIDs=_ids(red, rng))]
            * rng.choice((1, 1, 80))
        )
        for _ in range(rng.choice((1, 10)))
    ]
    await red.say(red.targets(rng), *[rpc for rpc in rpcs if rpc.ByteSize() < 1 << 20])


async def first_offers(red: Red, rng: random.Random) -> None:
    """Advertise just received ids to all, before other peers do, and never send the messages."""
    offered: set[bytes] = set()
    for _ in range(rng.choice((5, 30))):
        news = [key for key in red.loot.ids if key not in offered]
        offered.update(news)
        for topic in red.world.manifest.topics() if news else ():
            offer = rpc_pb2.ControlIHave(topicID=topic, messageIDs=news)
            await red.say(sorted(red.host.connected_peers()), _control(ihave=[offer]))
        await trio.sleep(0.2)


async def wants(red: Red, rng: random.Random) -> None:
    """Repeated IWANT of the same ids, and of unknown ones."""
    rpc = _control(iwant=[rpc_pb2.ControlIWant(messageIDs=_ids(red, rng))])
    await red.say(red.targets(rng), *[rpc] * rng.choice((1, 10, 60)))


async def grafts(red: Red, rng: random.Random) -> None:
    """Alternating GRAFT and PRUNE, with zero and endless back-offs, and peers to exchange."""
    topic = _topic(red, rng)
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
    for target in red.targets(rng):
        await red.say([target], *[rng.choice(parts) for _ in range(rng.choice((1, 2, 12)))])


async def unwanted(red: Red, rng: random.Random) -> None:
    """IDONTWANT of everything."""
    rpc = _control(idontwant=[rpc_pb2.ControlIDontWant(messageIDs=_ids(red, rng))])
    await red.say(red.targets(rng), *[rpc] * rng.choice((1, 20)))


async def subscriptions(red: Red, rng: random.Random) -> None:
    """Subscribe and unsubscribe, for existing and unknown topics."""

    def change() -> rpc_pb2.RPC.SubOpts:
        topic = rng.choice(
            (_topic(red, rng), _topic(red, rng), f"/t/{rng.randrange(9999)}", "\x1b", "t" * 300)
        )
        return rpc_pb2.RPC.SubOpts(subscribe=rng.random() < 0.7, topicid=topic)

    rpcs = [
        rpc_pb2.RPC(subscriptions=[change() for _ in range(rng.choice((1, 3, 400)))])
        for _ in range(rng.choice((1, 20)))
    ]
    await red.say(red.targets(rng), *rpcs)


async def joins(red: Red, rng: random.Random) -> None:
    """Behave like an honest peer: subscribe, and send GRAFT."""
    topics = red.world.manifest.topics()
    rpc = rpc_pb2.RPC(
        subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic) for topic in topics],
        control=rpc_pb2.ControlMessage(
            graft=[rpc_pb2.ControlGraft(topicID=topic) for topic in topics]
        ),
    )
    await red.say(sorted(red.host.connected_peers()), rpc)


async def everything(red: Red, rng: random.Random) -> None:
    """All parts in one RPC."""
    ids, topic = _ids(red, rng)[:200], _topic(red, rng)
    rpc = rpc_pb2.RPC(
        publish=rng.sample(list(red.loot.messages), min(5, len(red.loot.messages))),
        subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic)],
        control=rpc_pb2.ControlMessage(
            ihave=[rpc_pb2.ControlIHave(topicID=topic, messageIDs=ids)],
            iwant=[rpc_pb2.ControlIWant(messageIDs=ids)],
            graft=[rpc_pb2.ControlGraft(topicID=topic)],
            prune=[rpc_pb2.ControlPrune(topicID=topic)],
            idontwant=[rpc_pb2.ControlIDontWant(messageIDs=ids)],
        ),
    )
    await red.say(red.targets(rng), *[rpc] * rng.choice((1, 5)))


async def damage(red: Red, rng: random.Random) -> None:
    """Frames with a few bytes replaced, moved or removed."""
    kept = list(red.loot.messages)
    rpc = rpc_pb2.RPC(publish=rng.sample(kept, min(2, len(kept))))
    rpc.control.ihave.add(topicID=_topic(red, rng), messageIDs=_ids(red, rng)[:5])
    body = mutate(rng, [rpc.SerializeToString()])
    for target in red.targets(rng):
        await red.write(target, encode_uvarint(len(body)) + body, anew=rng.random() < 0.3)


async def no_frame(red: Red, rng: random.Random) -> None:
    """Invalid lengths, half a frame followed by silence, a thousand empty frames."""
    kinds = (
        b"\xff" * 9,
        encode_uvarint(1 << 30) + b"x",
        encode_uvarint(50_000) + rng.randbytes(100),
        encode_frame(rpc_pb2.RPC()) * 1000,
        b"\x80",
    )
    data = rng.choice(kinds)
    for target in red.targets(rng):
        await red.write(target, data, anew=rng.random() < 0.5)


async def streams(red: Red, rng: random.Random) -> None:
    """Open one gossip stream after another."""
    for target in red.targets(rng):
        for _ in range(rng.choice((2, 20))):
            await red.write(target, encode_frame(rpc_pb2.RPC()), anew=True)


async def deafness(red: Red, rng: random.Random) -> None:
    """Toggle reading: from now on it reads nothing, or reads again."""
    red.is_deaf = rng.random() < 0.7

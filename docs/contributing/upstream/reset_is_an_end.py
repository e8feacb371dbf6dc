"""A stream that the peer resets reads like one that it closed: half an answer counts as whole."""

import trio
from libp2p.abc import INetStream
from libp2p.network.stream.exceptions import StreamEOF, StreamReset
from stock import connect, peer, run, tell

PROTOCOL = "/reset/1"


async def main() -> int:
    async def answer_and_reset(stream: INetStream) -> None:
        await stream.write(b"the first half")
        await trio.sleep(0.5)
        await stream.reset()

    async with peer() as (one, _), peer() as (other, _):
        other.set_stream_handler(PROTOCOL, answer_and_reset)
        await connect(one, other)
        stream = await one.new_stream(other.get_id(), [PROTOCOL])
        assert await stream.read(1024) == b"the first half"
        try:
            await stream.read(1024)
        except StreamEOF:
            return tell(True, "the peer reset the stream, the reader got StreamEOF")
        except StreamReset:
            return tell(False, "the reader got StreamReset")
    return tell(False, "neither")


run(main)

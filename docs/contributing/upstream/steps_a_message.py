"""Each layer takes a lock for each frame, and Trio's locks let every other task run also when they
are free: a small message on an open stream, alone on its connection, takes dozens of task steps."""

import trio
from libp2p.abc import INetStream
from stock import connect, peer, run, tell

COUNT = 200
PROTOCOL = "/steps/1"
ENOUGH = 8
"""The writer, the other side's readers of connection and stream, and some to spare."""


class Steps(trio.abc.Instrument):
    """Counts them."""

    count = 0

    def before_task_step(self, _task: trio.lowlevel.Task) -> None:
        self.count += 1


async def main() -> int:
    received = trio.Semaphore(0)

    async def listen(stream: INetStream) -> None:
        while await stream.read(1024):
            received.release()

    async with peer() as (one, _), peer() as (other, _):
        other.set_stream_handler(PROTOCOL, listen)
        await connect(one, other)
        stream = await one.new_stream(other.get_id(), [PROTOCOL])
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        for _ in range(COUNT):
            await stream.write(b"hello")
            await received.acquire()
        trio.lowlevel.remove_instrument(steps)
        each = steps.count / COUNT
        await stream.reset()
    return tell(each > ENOUGH, f"{each:.0f} task steps for a message of five bytes")


run(main)

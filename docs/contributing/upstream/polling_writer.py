"""A writer whose stream's window is full looks every 10 ms whether it has grown, instead of being
woken by the frame that says so; each look takes a lock."""

import trio
from libp2p.abc import INetStream
from libp2p.stream_muxer.yamux.yamux import MAX_WINDOW_SIZE
from stock import connect, peer, run, tell

PROTOCOL = "/window/1"
WATCHED_S = 2.0


class Steps(trio.abc.Instrument):
    """Counts those of tasks that wait to write."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith("write_too_much")


async def main() -> int:
    async def ignore(_stream: INetStream) -> None:
        await trio.sleep_forever()

    async with peer() as (one, _), peer() as (other, _), trio.open_nursery() as nursery:
        other.set_stream_handler(PROTOCOL, ignore)
        await connect(one, other)
        stream = await one.new_stream(other.get_id(), [PROTOCOL])

        async def write_too_much() -> None:
            await stream.write(bytes(2 * MAX_WINDOW_SIZE))

        nursery.start_soon(write_too_much)
        await trio.sleep(1.0)
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(WATCHED_S)
        trio.lowlevel.remove_instrument(steps)
        nursery.cancel_scope.cancel()
    each = steps.count / WATCHED_S
    return tell(each > 5, f"{each:.0f} task steps a second of a writer that waits for its window")


run(main)

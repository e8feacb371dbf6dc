"""Sequence numbers start at the second of the start: after a restart within as many seconds as
messages were sent, they repeat, and receivers drop the messages as seen."""

import trio
from stock import peer, run, tell


async def main() -> int:
    async with peer() as (_, first):
        used = first.counter + 300  # three hundred messages later
    await trio.sleep(1)
    async with peer() as (_, second):
        repeated = max(0, used - second.counter)
    return tell(repeated > 0, f"{repeated} of 300 sequence numbers repeat after a restart")


run(main)

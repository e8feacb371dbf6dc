"""Spam protection, on by default, forwards at most ten messages a second of a peer and topic, the
peer's own publishes included, and drops the rest without an error."""

import trio
from stock import connect, count, peer, run, tell


async def main() -> int:
    async with peer() as (one, publisher), peer() as (other, reader):
        subscription = await reader.subscribe("topic")
        await publisher.subscribe("topic")
        await connect(one, other)
        await trio.sleep(3)
        async with trio.open_nursery() as nursery:
            found: list[int] = []

            async def read() -> None:
                found.append(await count(subscription, 4))

            nursery.start_soon(read)
            for number in range(60):
                await publisher.publish("topic", number.to_bytes(4, "big"))
                await trio.sleep(1 / 30)
    return tell(found[0] < 60, f"{found[0]} of 60 messages at 30 a second arrived")


run(main)

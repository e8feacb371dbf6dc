"""A loop of publish() loses most of what it publishes, without an error: the queue of a peer holds
32 RPCs, and what does not fit is dropped."""

import trio
from stock import connect, count, peer, run, tell


async def main() -> int:
    async with (
        peer(spam_protection_enabled=False) as (one, publisher),
        peer(spam_protection_enabled=False) as (other, reader),
    ):
        subscription = await reader.subscribe("topic")
        await publisher.subscribe("topic")
        await connect(one, other)
        await trio.sleep(3)
        async with trio.open_nursery() as nursery:
            found: list[int] = []

            async def read() -> None:
                found.append(await count(subscription, 4))

            nursery.start_soon(read)
            for number in range(200):
                await publisher.publish("topic", number.to_bytes(4, "big"))
    return tell(found[0] < 200, f"{found[0]} of 200 messages arrived")


run(main)

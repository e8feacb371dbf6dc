"""A publish that makes an RPC of over 1 MiB vanishes: no error, no message."""

import trio
from stock import connect, count, peer, run, tell


async def main() -> int:
    async with peer() as (one, publisher), peer() as (other, reader):
        subscription = await reader.subscribe("topic")
        await publisher.subscribe("topic")
        await connect(one, other)
        await trio.sleep(3)
        try:
            await publisher.publish("topic", bytes(1_060_000))
        except Exception as error:  # noqa: BLE001 - any error at all would do
            return tell(False, f"publish says {error!r}")
        arrived = await count(subscription, 5)
    return tell(arrived == 0, f"{arrived} of 1 messages of 1,060,000 bytes arrived, no error")


run(main)

"""Rejecting a message of 1 MB holds the loop up: the error formats the message whole."""

import time

import trio
from libp2p.pubsub.pb import rpc_pb2
from stock import peer, run, tell


def reject(_peer, _message) -> bool:
    return False


async def cost_ms(one, pubsub, theirs, size: int) -> float:
    sent: list[rpc_pb2.Message] = []

    async def keep(_forwarder, message) -> None:
        sent.append(message)

    theirs.push_msg = keep
    spent = 0.0
    for _ in range(3):
        await theirs.publish("topic", bytes(range(256)) * (size // 256))
        started = time.process_time()
        try:
            await pubsub.push_msg(one.get_id(), sent.pop())
        except Exception:  # noqa: BLE001 - its own type, whatever it is
            await trio.lowlevel.checkpoint()
        spent += time.process_time() - started
    return spent / 3 * 1000


async def main() -> int:
    async with peer() as (one, pubsub), peer() as (_, theirs):
        await pubsub.subscribe("topic")
        accepted = await cost_ms(one, pubsub, theirs, 1_000_000)
        pubsub.set_topic_validator("topic", reject, False)
        rejected = await cost_ms(one, pubsub, theirs, 1_000_000)
    return tell(
        rejected > 2 * accepted,
        f"a rejected 1 MB message costs {rejected:.0f} ms of the loop, an accepted {accepted:.0f}",
    )


run(main)

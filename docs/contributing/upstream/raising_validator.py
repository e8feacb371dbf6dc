"""A synchronous topic validator that raises ends the process; an asynchronous one is contained."""

import trio
from stock import connect, peer, run, tell


def validator(_peer, _message) -> bool:
    raise RuntimeError("a fault of the application")


async def main() -> int:
    async with peer() as (victim, pubsub), peer() as (other, others):
        pubsub.set_topic_validator("topic", validator, False)
        await pubsub.subscribe("topic")
        await others.subscribe("topic")
        await connect(other, victim)
        await trio.sleep(3)
        await others.publish("topic", b"hello")
        await trio.sleep(2)
    return tell(False, "the victim lives")


run(main, dies="a raising synchronous validator ends the process")

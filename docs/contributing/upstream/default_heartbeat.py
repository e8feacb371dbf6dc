"""GossipSub's heartbeat defaults to 120 s; the specification, go and js say 1 s."""

import inspect

from libp2p.pubsub.gossipsub import GossipSub
from stock import run, tell


async def main() -> int:
    parameters = inspect.signature(GossipSub.__init__).parameters
    default = parameters["heartbeat_interval"].default
    return tell(default > 10, f"heartbeat_interval defaults to {default} s")


run(main)

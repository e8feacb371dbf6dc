"""`shoal node`: its flags. The code that runs it is imported after parsing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from shoal_p2p.flags import ServingFlags
from shoal_settings.exits import UsageExit

DESCRIPTION = """\
Run a node and its trainer: join a swarm, train on verifiable tasks, share every answer, and train
on the answers of other nodes.

Without --bootstrap it looks for known peers and for peers on this machine and the local network.
If it finds none, it trains alone and keeps looking.

  shoal node                                the embedded small model
  shoal node --bootstrap /ip4/…/p2p/12D3…   join the swarm of that peer
  shoal node --model Qwen/Qwen2.5-0.5B-Instruct --max-new-tokens 256"""

FLAGS = ServingFlags(name="node", description=DESCRIPTION, settings_of="node")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal node`; return the exit code."""
    try:
        given = FLAGS.parse(argv)
    except UsageExit as end:
        return end.code
    from shoal_p2p.live_command import run  # late: libp2p takes over a second

    return run(given)


if __name__ == "__main__":
    sys.exit(main())

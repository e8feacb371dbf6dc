"""`shoal swarm`: its flags. What runs it is imported once they are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal_p2p.flags import ServingFlags

DESCRIPTION = """\
Start a bootstrap peer and N nodes on this machine and watch them learn from one another. With
--rounds it ends when every node has done that many; without, at Ctrl-C. Each node is a real one:
look inside with `shoal status --data-dir .shoal/swarm/node-1`, and so on. Started again it
continues where it stopped; remove the folder to start over.

No other node on the machine joins: the processes have a key of their own, swarm.key in the folder.
With --mdns there is none, and others are welcome.

  shoal swarm --nodes 4 --rounds 60   some minutes on two CPU cores"""

FLAGS = ServingFlags(
    name="swarm",
    description=DESCRIPTION,
    settings_of="swarm",
    defaults={"data_dir": Path(".shoal/swarm"), "mdns": False},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal swarm`; return the exit code."""
    given = FLAGS.parse(argv)
    from shoal.swarm.running import run  # late: libp2p takes over a second

    return run(given)

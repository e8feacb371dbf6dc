"""`shoal swarm`: its flags; the rest is imported after they are parsed."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.nearby import SWARM_FOLDER
from shoal_p2p.flags import ServingFlags

DESCRIPTION = """\
Start a bootstrap peer and N nodes on this machine, which train on one another's groups. It ends
after --rounds of every node, or at Ctrl-C. Each is a real node:
inspect it with `shoal status --data-dir .shoal/swarm/node-1`, and so on. The same command
continues a stopped swarm; remove the folder to start over.

No other node joins: the swarm is private, with its key in swarm.key in the folder. With --mdns it
is public.

  shoal swarm --nodes 4 --rounds 60   some minutes on two CPU cores"""

FLAGS = ServingFlags(
    name="swarm",
    description=DESCRIPTION,
    settings_of="swarm",
    defaults={"data_dir": SWARM_FOLDER, "mdns": False},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal swarm`; return the exit code."""
    given = FLAGS.parse(argv)
    from shoal.swarm.running import run  # late: libp2p takes over a second

    return run(given)

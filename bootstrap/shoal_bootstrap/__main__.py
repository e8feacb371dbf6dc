"""`shoal bootstrap`: its flags. The code that runs it is imported after parsing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from shoal_p2p.flags import ServingFlags
from shoal_settings.exits import UsageExit

DESCRIPTION = """\
Run a bootstrap peer: a stable address at which newcomers get the swarm's manifest and a list of
peers. It relays gossip, stores no rollouts and trains nothing; connected nodes stay together
without it. Nodes join with `shoal node --bootstrap ADDRESS`, ADDRESS being one of the lines that
it prints, or with `shoal join LINE`, LINE being what `shoal invite` prints for it.

  shoal bootstrap           on port 4001 of every address of this machine
  shoal bootstrap --relay   also relay for nodes that peers cannot dial"""

FLAGS = ServingFlags(
    name="bootstrap",
    description=DESCRIPTION,
    settings_of="bootstrap",
    defaults={
        "data_dir": Path(".shoal/bootstrap"),
        "listen": ("/ip4/0.0.0.0/tcp/4001",),
        "target_peers": 64,
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal bootstrap`; return the exit code."""
    try:
        given = FLAGS.parse(argv)
    except UsageExit as end:
        return end.code
    from shoal_bootstrap.live_command import run  # late: libp2p takes over a second

    return run(given)


if __name__ == "__main__":
    sys.exit(main())

"""`shoal judge`: its flags. The code that runs it is imported after parsing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from shoal_p2p.flags import ServingFlags
from shoal_settings.exits import UsageExit

DESCRIPTION = """\
Run a judge: nodes ask it for a question after every few rounds, answer once, and it keeps a signed
record of each score that anybody may read. It takes the settings of `shoal bootstrap`; with
--bootstrap it judges that peer's swarm, else one made from --tasks. Nodes ask with
`shoal node --judge ADDRESS`, ADDRESS being one of the lines that it prints.

  shoal judge --bootstrap /ip4/…/p2p/12D3…     judge the swarm of that peer
  shoal judge report --data-dir .shoal/judge   swarm against silo, as a table"""

FLAGS = ServingFlags(
    name="judge",
    description=DESCRIPTION,
    settings_of="bootstrap",
    defaults={"data_dir": Path(".shoal/judge")},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal judge`; return the exit code."""
    try:
        given = FLAGS.parse(argv)
    except UsageExit as end:
        return end.code
    from shoal_p2p.judge.live_command import run  # late: libp2p takes over a second

    return run(given)


if __name__ == "__main__":
    sys.exit(main())

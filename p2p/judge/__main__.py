"""`shoal judge`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from p2p.judge.peer import JudgePeer, SittingJudge
from p2p.judge.store import JudgeStoreError
from p2p.process import Serving, run_until_stopped, serve
from shoal_base.visible import visible_name
from shoal_settings.called import called
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError

DEFAULTS = {"data_dir": Path(".shoal/judge")}

DESCRIPTION = """\
Run a judge: nodes ask it for a question after every few rounds, answer once, and it keeps a signed
record of each score that anybody may read. It takes the settings of `shoal bootstrap`; with
--bootstrap it judges that peer's swarm, else one made from --tasks. Nodes ask with
`shoal node --judge ADDRESS`, ADDRESS being one of the lines that it prints.

  shoal judge --bootstrap /ip4/…/p2p/12D3…     judge the swarm of that peer
  shoal judge report --data-dir .shoal/judge   swarm against silo, as a table"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal judge`; return the exit code."""
    serving = Serving(
        name="judge",
        description=DESCRIPTION,
        make=JudgePeer,
        run=run_until_stopped,
        announce=_announce,
        facts=lambda peer: {"records": peer.judge.num_records},
        settings_of="bootstrap",
        defaults=DEFAULTS,
        failures=(TaskError, JudgeStoreError),
    )
    return serve(serving, argv)


def _announce(peer: SittingJudge, settings: Settings) -> Iterator[str]:
    manifest, addresses = peer.member.manifest, peer.member.host.listen_addrs()
    name = visible_name(manifest.swarm_name)
    yield f"judge of swarm {name} {manifest.short_name}; nodes reach it at"
    for address in addresses:
        yield f"  {address}"
    flags = ["--judge", addresses[0]]
    if settings.swarm_key != "none":
        flags += ["--swarm-key", settings.swarm_key]
    yield f"ask it: {called()} node {shlex.join(flags)}"
    yield f"{peer.judge.num_records} records so far in {settings.data_dir}"


if __name__ == "__main__":
    sys.exit(main())

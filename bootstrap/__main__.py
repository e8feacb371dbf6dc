"""`shoal bootstrap`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bootstrap.peer import BootstrapPeer, MeetingPoint
from p2p.process import Serving, run_until_stopped, serve
from shoal_base.visible import visible_name
from shoal_settings.called import called, join_command
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError

DEFAULTS = {
    "data_dir": Path(".shoal/bootstrap"),
    "listen": ("/ip4/0.0.0.0/tcp/4001",),
    "target_peers": 64,
}

DESCRIPTION = """\
Run a bootstrap peer: a stable address at which newcomers learn what the swarm has agreed on and
whom to connect to. It relays gossip, keeps no rollouts and trains nothing; nodes that have met
stay together without it. Nodes join with `shoal node --bootstrap ADDRESS`, ADDRESS being one of
the lines that it prints, or with `shoal join LINE`, LINE being what `shoal invite` prints of it.

  shoal bootstrap           on port 4001 of every address of this machine
  shoal bootstrap --relay   also for nodes that nobody can dial"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal bootstrap`; return the exit code."""
    serving = Serving(
        name="bootstrap",
        description=DESCRIPTION,
        make=BootstrapPeer,
        run=run_until_stopped,
        announce=_announce,
        settings_of="bootstrap",
        defaults=DEFAULTS,
        failures=(TaskError,),
    )
    return serve(serving, argv)


def _announce(peer: MeetingPoint, settings: Settings) -> Iterator[str]:
    manifest, addresses = peer.member.manifest, peer.member.host.listen_addrs()
    name = visible_name(manifest.swarm_name)
    yield f"bootstrap peer of swarm {name} {manifest.short_name}; reachable at"
    for address in addresses:
        yield f"  {address}"
    yield f"join it: {join_command(addresses[0], settings.swarm_key)}"
    folder = shlex.quote(str(settings.data_dir))
    yield f"or in one line for a friend: {called()} invite --data-dir {folder}"


if __name__ == "__main__":
    sys.exit(main())

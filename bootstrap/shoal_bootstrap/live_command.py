"""`shoal bootstrap`, once its flags are read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from shoal_base.extras import missing_for_tasks
from shoal_base.visible import visible_name
from shoal_bootstrap.peer import BootstrapPeer, MeetingPoint
from shoal_p2p.flags import ParsedFlags
from shoal_p2p.process import Serving, run_until_stopped, serve
from shoal_p2p.store.types import StoreError
from shoal_settings.called import called, join_command
from shoal_settings.exits import fail
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError


def run(given: ParsedFlags) -> int:
    """Run `shoal bootstrap`; return the exit code."""
    shards = given.loaded.settings.subscribe_shards
    if shards not in ("auto", "0") and (missing := missing_for_tasks()) is not None:
        return fail("bootstrap", f"{missing} (or --subscribe-shards 0)").code
    serving = Serving(
        make=BootstrapPeer,
        run=run_until_stopped,
        announce=_announce,
        failures=(TaskError, StoreError),
    )
    return serve(serving, given)


def _announce(peer: MeetingPoint, settings: Settings) -> Iterator[str]:
    manifest, addresses = peer.member.manifest, peer.member.host.listen_addrs()
    name = visible_name(manifest.swarm_name)
    yield f"bootstrap peer of swarm {name} {manifest.short_name}; reachable at"
    for address in addresses:
        yield f"  {address}"
    yield f"join it: {join_command(addresses[0], settings.swarm_key)}"
    folder = shlex.quote(str(settings.data_dir))
    yield f"or in one line for a friend: {called()} invite --data-dir {folder}"
    if missing_for_tasks() is not None:
        yield "nodes meet here; to forward their rollouts as well: pip install 'shoal[tasks]'"

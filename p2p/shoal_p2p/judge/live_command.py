"""`shoal judge`, once its flags are read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from shoal_base.extras import missing_for_tasks
from shoal_base.visible import visible_name
from shoal_p2p.flags import ParsedFlags
from shoal_p2p.judge.peer import JudgePeer, SittingJudge
from shoal_p2p.judge.store import JudgeStoreError
from shoal_p2p.process import Serving, run_until_stopped, serve
from shoal_p2p.store.types import StoreError
from shoal_settings.called import called
from shoal_settings.exits import fail
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError


def run(given: ParsedFlags) -> int:
    """Run `shoal judge`; return the exit code."""
    if (missing := missing_for_tasks()) is not None:
        return fail("judge", missing).code
    serving = Serving(
        make=JudgePeer,
        run=run_until_stopped,
        announce=_announce,
        facts=lambda peer: {"records": peer.judge.num_records},
        failures=(TaskError, JudgeStoreError, StoreError),
    )
    return serve(serving, given)


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

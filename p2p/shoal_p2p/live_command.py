"""`shoal node`, once its flags are read."""

from __future__ import annotations

import json
import logging
import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import trio

from shoal_base.extras import missing_for_tasks, missing_for_trainer
from shoal_base.lines import say
from shoal_base.node_folders import newest_checkpoint
from shoal_base.visible import visible_name
from shoal_p2p.flags import ParsedFlags
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.node import Node, NodeEnd
from shoal_p2p.process import Serving, serve
from shoal_p2p.state_file import LAST_STATUS, STATE_FILE, write_state
from shoal_p2p.store.store import StoreError
from shoal_settings.called import called
from shoal_settings.default_folder import default_folders, default_folders_without_model
from shoal_settings.early import early_refusal
from shoal_settings.exits import EXIT_OK, EXIT_USAGE, fail
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError

log = logging.getLogger(__name__)


def run(given: ParsedFlags, *, make: Callable[..., Node] | None = None) -> int:
    """Run `shoal node` with the node that `make` makes, or `make_node`; return the exit code."""
    serving = Serving(
        make=make or make_node,
        run=_run,
        announce=_announce,
        failures=(StoreError, TaskError),
        folders=_folders,
    )
    return serve(serving, given)


def make_node(*, settings: Settings, **given: Any) -> Node:
    """Return a node. Raises UsageExit if its trainer cannot be started.

    At this point no peer was dialled, and the node accepts no connections.
    """
    if settings.role == "observe":
        if (missing := missing_for_tasks()) is not None:
            raise fail("node", missing)
    else:
        served = settings.role == "generate" and settings.generator == "openai"
        if (missing := missing_for_trainer(served=served)) is not None:
            raise fail("node", f"{missing} (or --role observe, for a node that trains nothing)")
        if (refused := early_refusal(settings)) is not None:
            raise fail("node", refused)
    return Node(settings=settings, **given)


def _folders(settings: Settings) -> Iterable[Path]:
    if settings.role == "observe":
        return default_folders_without_model(settings)
    return default_folders(settings)


async def _run(node: Node, settings: Settings) -> int | None:
    end = await node.run()
    if node.last_status:
        await _keep_last_status(node, settings)
    if not settings.json_output:
        for line in _kept(node, settings, end):
            say(line)
    match end:
        case NodeEnd.MANIFEST_CHANGED:
            return None
        case NodeEnd.MISCONFIGURED:
            return EXIT_USAGE
        case _:
            return EXIT_OK


def _kept(node: Node, settings: Settings, end: NodeEnd) -> Iterator[str]:
    """Return the final lines for the user: what was saved, and how to resume."""
    played = node.last_status.get("round", 0)
    if end is NodeEnd.FINISHED and settings.rounds:
        more = f"ROUNDS={2 * settings.rounds} (--rounds) continues"
        yield f"{played} of {settings.rounds} rounds are done; {more}"
    elif end is NodeEnd.STOPPED and settings.role != "observe":
        checkpoint = newest_checkpoint(settings.data_dir)
        kept = f"checkpoint {checkpoint.name}" if checkpoint else "no checkpoint yet"
        where = f"{kept} in {settings.data_dir}"
        yield f"stopped at round {played}: {where}; run the same command to resume"


async def _keep_last_status(node: Node, settings: Settings) -> None:
    """Save the final status for `shoal status --last`."""
    content = json.dumps(node.last_status, indent=1).encode()
    try:
        path = settings.data_dir / STATE_FILE
        await trio.to_thread.run_sync(write_state, path, LAST_STATUS, content)
    except (sqlite3.Error, OSError) as error:
        log.warning("the last numbers are not kept: %s", error)


def _announce(node: NodeComponents, settings: Settings) -> Iterator[str]:
    member, manifest = node.member, node.member.manifest
    yield f"node {member.peer_id}  (data in {settings.data_dir})"
    name = visible_name(manifest.swarm_name)
    num = len(manifest.families)
    yield f"swarm {name} {manifest.short_name}, {num} {'family' if num == 1 else 'families'}"
    for address in member.host.listen_addrs():
        yield f"  listening on {address}"
    folder = shlex.quote(str(settings.data_dir))
    yield f"look inside: {called()} status --data-dir {folder}"
    yield f"invite others: {called()} invite --data-dir {folder}"

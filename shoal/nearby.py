"""Finds the default folder of a command: that of the node that runs, or ran last."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shoal_base.bounded import FEW
from shoal_base.lines import say
from shoal_base.node_folders import METRICS_FILE, NODE_FOLDER, folders_with
from shoal_base.waits import SHORT_DEADLINE_S
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_settings.exits import EXIT_NO_NODE, fail
from shoal_settings.started_with import started_with

SWARM_FOLDER: Final = Path(".shoal/swarm")
"""Default folder of `shoal swarm`; other models and tasks add their names."""
_LEFT = "node.db"
"""A file in the folder of every node, and not of a bootstrap peer."""
_LOG: Final = "trainer.log"
"""Written also by a trainer without a node."""


def running_node(named: Path = NODE_FOLDER) -> Path:
    """Return the folder of the running node, or of the last one started if several run.

    If none runs, return the folder of the node that ran last. Of a local swarm that is its first
    node. A folder given as `named` is returned unchanged, also if it equals the default, unless it
    is a swarm's.
    """
    if named is not NODE_FOLDER:
        return node_of(named, SOCKET_NAME, _LEFT)
    running = answering(_candidates(SOCKET_NAME))
    if running:
        return _latest(running, "nodes run here", SOCKET_NAME)
    return _latest(_candidates(_LEFT), "nodes have run here", _LEFT)


def folder_with(file: str, named: Path = NODE_FOLDER) -> Path:
    """Return the folder that holds a file, or the one used last if several do."""
    if named is not NODE_FOLDER:
        return node_of(named, file)
    return _latest(_candidates(file), f"folders have {file}", file)


def node_of(folder: Path, *files: str) -> Path:
    """Return the first node with one of some files if `folder` is a local swarm's, and say so.

    Any other folder is returned unchanged.
    """
    first = _first_node(folder, files)
    if first is None:
        return folder
    say(f"shoal: {folder} is the folder of a swarm; this is {first}", error=True)
    return first


def swarm_of(folder: Path) -> Path:
    """Return the folder of the local swarm that a node belongs to, otherwise the node's own."""
    begun = started_with(folder.parent)
    return folder.parent if begun is not None and begun.name == "swarm" else folder


def _candidates(file: str) -> list[Path]:
    """Return the default folders of nodes that have a file; of each local swarm its first node."""
    swarms = sorted(NODE_FOLDER.parent.glob(f"{SWARM_FOLDER.name}*"))
    firsts = (_first_node(one, (file,)) for one in swarms)
    return [*folders_with(file), *(one for one in firsts if one is not None)]


def _first_node(swarm: Path, files: Sequence[str]) -> Path | None:
    begun = started_with(swarm)
    if begun is None or begun.name != "swarm":
        return None
    nodes = [swarm / f"node-{number}" for number in range(1, FEW)]
    return next((one for file in files for one in nodes if (one / file).exists()), None)


def need_folder(command: str, folder: Path) -> None:
    """Raise UsageExit if there is no such folder."""
    # Path.is_dir raises for a name that is too long.
    if not os.path.isdir(folder):  # noqa: PTH112
        why = f"there is no folder {folder}; name the --data-dir of a node or another peer"
        raise fail(command, why, EXIT_NO_NODE)


def answers_at(folder: Path) -> bool:
    """Return whether a node answers on the socket in this folder."""
    path = folder / SOCKET_NAME
    client = NodeClient(path, role=m.Role.INSPECTOR, timeout_seconds=SHORT_DEADLINE_S)
    try:
        return client.ensure()
    finally:
        client.close()


def answering(folders: Sequence[Path]) -> list[Path]:
    """Return the folders whose node answers, among the first few."""
    return [one for one in folders[:FEW] if answers_at(one)]


def _latest(found: Sequence[Path], what: str, file: str) -> Path:
    """Return the folder used last, by default NODE_FOLDER; name it if there are several."""
    if len(found) < 2:
        return found[0] if found else NODE_FOLDER
    latest = max(found, key=lambda folder: _used_at(folder, file))
    say(f"shoal: {len(found)} {what}; this is {latest} (--data-dir names another)", error=True)
    return latest


def _used_at(folder: Path, file: str) -> float:
    """Return when a folder was last used; 0 if unknown."""
    times = [0.0]
    for name in (file, _LEFT, METRICS_FILE, _LOG):
        with contextlib.suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times)

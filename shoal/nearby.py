"""Finds the node of a command that names no folder: the one there is, or was used last."""

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

_LEFT = "node.db"
"""A file that every node leaves in its folder, and a bootstrap peer does not."""
_LOG: Final = "trainer.log"
"""Written by a trainer without a node, too."""


def running_node(named: Path = NODE_FOLDER) -> Path:
    """Return the folder of the node that runs, and of several that of the one started last.

    If none runs it is the folder that a node has used last. A folder that was named is returned as
    it is, also where it is named as the default is.
    """
    if named is not NODE_FOLDER:
        return named
    running = answering(folders_with(SOCKET_NAME))
    if running:
        return _latest(running, "nodes run here", SOCKET_NAME)
    return _latest(folders_with(_LEFT), "nodes have run here", _LEFT)


def folder_with(file: str, named: Path = NODE_FOLDER) -> Path:
    """Return likewise the folder that holds a file, and of several the one used last."""
    if named is not NODE_FOLDER:
        return named
    return _latest(folders_with(file), f"folders have {file}", file)


def need_folder(command: str, folder: Path) -> None:
    """Raise UsageExit where there is no such folder."""
    # Path.is_dir raises for a name that no disk takes.
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
    """Return the folders whose node answers, of the first few."""
    return [one for one in folders[:FEW] if answers_at(one)]


def _latest(found: Sequence[Path], what: str, file: str) -> Path:
    """Return the folder used last, and say which where there are several; the default for none."""
    if len(found) < 2:
        return found[0] if found else NODE_FOLDER
    latest = max(found, key=lambda folder: _used_at(folder, file))
    say(f"shoal: {len(found)} {what}; this is {latest} (--data-dir names another)", error=True)
    return latest


def _used_at(folder: Path, file: str) -> float:
    """Return when a folder was used last; 0 where that cannot be known."""
    times = [0.0]
    for name in (file, _LEFT, METRICS_FILE, _LOG):
        with contextlib.suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times)

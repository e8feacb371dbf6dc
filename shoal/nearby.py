"""Finds the node of a command that names no folder: the one there is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from shoal_base.bounded import FEW
from shoal_base.node_folders import NODE_FOLDER, beside
from shoal_base.waits import SHORT_DEADLINE_S
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_settings.exits import EXIT_NO_NODE, fail

_LEFT = "node.db"
"""A file that every node leaves in its folder, and a bootstrap peer does not."""


def running_node(named: Path = NODE_FOLDER) -> Path:
    """Return the default folder if a node runs there, or else the only one where one does.

    If none runs and there is no default folder, it is the only one that a node has left.
    A folder that was named is returned as it is, also where it is named as the default is.
    """
    default = NODE_FOLDER
    if named is not default or answers_at(default):
        return named
    running = answering(beside(default, SOCKET_NAME))
    if not running and not default.exists():
        return _only(beside(default, _LEFT))
    return _only(running)


def folder_with(file: str, named: Path = NODE_FOLDER) -> Path:
    """Return likewise the default folder if it holds a file, or else the only one that does."""
    if named is not NODE_FOLDER or (named / file).exists():
        return named
    return _only(beside(NODE_FOLDER, file))


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


def _only(found: Sequence[Path]) -> Path:
    return found[0] if len(found) == 1 else NODE_FOLDER

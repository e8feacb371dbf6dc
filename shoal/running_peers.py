"""Finds the peers that this user runs now, by the lock that each holds on its data directory.

There is no registry that could be out of date: a peer is in the list as long as its process holds
the lock, wherever its folder is and however it was started.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import psutil

from shoal.view.folder_follower import inspector
from shoal_ipc.answers.form import read
from shoal_ipc.answers.node import Status
from shoal_ipc.client import NodeRefused, NodeUnavailable
from shoal_p2p.data_dir import LOCK_FILE, owner_of, why_suspended

Role = Literal["node", "bootstrap", "judge", "swarm"]
_ROLES: Final[dict[str, Role]] = {
    "node": "node",
    "join": "node",
    "bootstrap": "bootstrap",
    "judge": "judge",
    "swarm": "swarm",
}
"""Roles by the command that starts a process which owns a data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPeer:
    """A process that owns a data directory."""

    folder: Path
    pid: int
    role: Role
    parent_pid: int
    """Process that started it: of a swarm's nodes, the swarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """A running peer's answer to a request for its status."""

    state: str
    """A trainer's state; `running` without one, or `suspended` or `not answering`."""
    round: int | None = None


def running_peers() -> list[RunningPeer]:
    """Return the peers that this user runs, ordered by folder."""
    own, found = os.getuid(), []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended meanwhile, or it is protected
            if process.uids().real == own and (role := _role_of(process.cmdline())):
                found += [
                    RunningPeer(
                        folder=folder, pid=process.pid, role=role, parent_pid=process.ppid()
                    )
                    for folder in _folders_of(process)
                ]
    return sorted(found, key=lambda peer: peer.folder)


def top_level(peers: list[RunningPeer]) -> list[RunningPeer]:
    """Return the peers that no other one has started: a swarm, and not its nodes."""
    pids = {peer.pid for peer in peers}
    return [peer for peer in peers if peer.parent_pid not in pids]


def status_of(peer: RunningPeer) -> PeerStatus:
    """Ask a peer for its status. Blocks for seconds where it does not answer."""
    if why_suspended(peer.folder) is not None:
        return PeerStatus(state="suspended")
    if peer.role == "swarm":  # it has no socket: its nodes answer
        return PeerStatus(state="running")
    client = inspector(peer.folder)
    try:
        status = read(Status, client.inspect("status"))
    except (NodeUnavailable, NodeRefused, ValueError):
        return PeerStatus(state="not answering")
    finally:
        client.close()
    state = status.trainer.state if status.trainer is not None else ""
    return PeerStatus(state=state or "running", round=status.round)


def shown_folder(folder: Path) -> str:
    """Return a folder as people type it: relative, if it is below the current one."""
    with suppress(ValueError, OSError):
        return str(folder.relative_to(Path.cwd()))
    return str(folder)


def _role_of(command_line: list[str]) -> Role | None:
    """Return the role of a process by its command line; None if it is not a peer."""
    for word, command in pairwise(command_line):
        if Path(word).name == "shoal":
            return _ROLES.get(command)
    return None


def _folders_of(process: psutil.Process) -> Iterator[Path]:
    for file in process.open_files():
        path = Path(file.path)
        if path.name == LOCK_FILE and owner_of(path.parent) == process.pid:
            yield path.parent

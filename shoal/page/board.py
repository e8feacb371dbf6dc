"""The peers of a page; one thread for each requests its views, for all browsers.

folders, found again every few seconds ─▶ a `LivePeer` each ─▶ the state that browsers request
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shoal.view.folder_follower import SELDOM_S
from shoal.view.live import LivePeer
from shoal_base.bounded import FEW
from shoal_base.waits import MINUTE_S
from shoal_ipc.answers.form import Versioned
from shoal_ipc.client import SOCKET_NAME
from shoal_p2p.data_dir import IDENTITY_FILE


class Board:
    """The state that the page shows."""

    def __init__(self, named: Sequence[Path], *, program: str = "shoal") -> None:
        """`named` are folders of peers or of swarms; `program` starts shoal in copied commands."""
        self._named = tuple(named)
        self._program = program
        self.peers: dict[str, LivePeer] = {}
        """Peers by name. Replaced, never changed: other threads iterate over it."""
        self._requested_at = float("-inf")

    def start(self) -> None:
        """Start to request all peers' views, in threads that end with the process."""
        threading.Thread(target=self._run, daemon=True, name="board").start()

    def _run(self) -> None:
        while True:
            self._find()
            time.sleep(SELDOM_S)

    def note_request(self) -> None:
        """Record that a browser requested the state."""
        self._requested_at = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Return the whole state."""
        return {
            "schema_version": Versioned.schema_version,
            "version": version("shoal"),
            "peers": [peer.shown for peer in self.peers.values() if peer.shown],
        }

    @property
    def answered_at(self) -> float:
        """Return the monotonic time of the last answer of any peer."""
        return max((peer.answered_at for peer in self.peers.values()), default=float("-inf"))

    def _is_looked_at(self) -> bool:
        return time.monotonic() - self._requested_at < MINUTE_S

    def _find(self) -> None:
        """Add new peers. A peer whose folder is gone stays, as down."""
        found, peers = peer_folders(self._named), dict(self.peers)
        known = {peer.folder for peer in peers.values()}
        mistaken = known.difference(found.values())
        for name in [name for name, one in peers.items() if one.folder in mistaken]:
            if peers[name].answered_at == float("-inf"):  # it is the folder of a swarm
                peers.pop(name).end()
        for name, folder in found.items():
            if folder not in known and name not in peers:
                peers[name] = LivePeer(
                    name, folder, program=self._program, is_looked_at=self._is_looked_at
                )
                peers[name].start()
        self.peers = peers


def peer_folders(named: Sequence[Path]) -> dict[str, Path]:
    """Return the folders of peers by unique short names.

    A folder that contains folders of peers, as that of `shoal swarm`, stands for those. Reads the
    disk; a folder that does not exist yet stands for itself.
    """
    found: dict[str, Path] = {}
    for folder in named:
        for one in _inside(folder) or [folder]:
            if len(found) < FEW and one not in found.values():
                found[_free_name(one.name or str(one), found)] = one
    return found


def _inside(folder: Path) -> list[Path]:
    if _is_peer(folder):
        return []
    try:
        return sorted((one for one in folder.iterdir() if _is_peer(one)), key=_order)[:FEW]
    except OSError:
        return []


def _is_peer(folder: Path) -> bool:
    """Return whether the folder has data of a peer."""
    return any((folder / name).exists() for name in (IDENTITY_FILE, SOCKET_NAME))


def _order(folder: Path) -> tuple[str, int, str]:
    """Sort node-10 after node-9."""
    stem, _, number = folder.name.rpartition("-")
    return (stem, int(number), "") if number.isdigit() else (folder.name, 0, folder.name)


def _free_name(name: str, taken: dict[str, Path]) -> str:
    if name not in taken:
        return name
    return next(one for n in range(2, FEW + 2) if (one := f"{name} ({n})") not in taken)

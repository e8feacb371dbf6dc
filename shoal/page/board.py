"""All peers of a page, each asked in its own thread, for all browsers together.

folders, looked for again every few seconds ─▶ a `LivePeer` each ─▶ the state that browsers ask for
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shoal.page.folders import peer_folders
from shoal.view.asking import SELDOM_S
from shoal.view.live import LivePeer
from shoal_base.waits import MINUTE_S
from shoal_ipc.answers.form import Versioned


class Board:
    """Everything that the page shows."""

    def __init__(self, named: Sequence[Path], *, program: str = "shoal") -> None:
        """`named` are folders of peers or of swarms; `program` starts shoal in copied commands."""
        self._named = tuple(named)
        self._program = program
        self.peers: dict[str, LivePeer] = {}
        """Peers by name. Replaced, never changed: other threads iterate over it."""
        self._asked_at = float("-inf")

    def start(self) -> None:
        """Ask all peers from now on, in threads that end with the process."""
        threading.Thread(target=self._run, daemon=True, name="board").start()

    def _run(self) -> None:
        while True:
            self._find()
            time.sleep(SELDOM_S)

    def note_request(self) -> None:
        """Note that a reader looks."""
        self._asked_at = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Return everything at once."""
        return {
            "schema_version": Versioned.schema_version,
            "version": version("shoal"),
            "peers": [peer.shown for peer in self.peers.values() if peer.shown],
        }

    @property
    def answered_at(self) -> float:
        """Return the time when any peer answered last, by the monotonic clock."""
        return max((peer.answered_at for peer in self.peers.values()), default=float("-inf"))

    def _is_looked_at(self) -> bool:
        return time.monotonic() - self._asked_at < MINUTE_S

    def _find(self) -> None:
        """Take up peers that are new; one whose folder is gone stays as down."""
        found, peers = peer_folders(self._named), dict(self.peers)
        known = {peer.folder for peer in peers.values()}
        mistaken = known.difference(found.values())
        for name in [name for name, one in peers.items() if one.folder in mistaken]:
            if peers[name].answered_at == float("-inf"):  # a swarm's folder, as it turned out
                peers.pop(name).end()
        for name, folder in found.items():
            if folder not in known and name not in peers:
                peers[name] = LivePeer(
                    name, folder, program=self._program, is_looked_at=self._is_looked_at
                )
                peers[name].start()
        self.peers = peers

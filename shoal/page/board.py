"""All peers of a page, each asked by its own task, for all browsers together.

folders, looked for again every few seconds ─▶ a `PagePeer` each ─▶ the state that browsers ask for
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import trio

from shoal.page.folders import peer_folders
from shoal.page.peer import PagePeer

SCHEMA_VERSION: Final = 1
_LOOK_S: Final = 3.0  # a new peer is shown within as long; a guess
_LOOKED_AT_S: Final = 10.0
"""After a request a peer is asked often for so long."""


class Board:
    """Everything that the page shows."""

    def __init__(self, named: Sequence[Path], *, program: str = "shoal") -> None:
        """`named` are folders of peers or of swarms; `program` starts shoal in copied commands."""
        self._named = tuple(named)
        self._program = program
        self.peers: dict[str, PagePeer] = {}
        self._asked_at = float("-inf")

    async def run(self) -> None:
        """Ask all peers until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._find(nursery)
                await trio.sleep(_LOOK_S)

    def note_request(self) -> None:
        """Somebody looks."""
        self._asked_at = trio.current_time()

    def state(self) -> dict[str, Any]:
        """Return everything at once."""
        return {
            "schema_version": SCHEMA_VERSION,
            "version": version("shoal"),
            "peers": [
                {**peer.shown, "name": peer.name, "rows": peer.rows} for peer in self._shown()
            ],
        }

    @property
    def answered_at(self) -> float:
        """When any peer answered last, by Trio's clock."""
        return max((peer.answered_at for peer in self.peers.values()), default=float("-inf"))

    def _shown(self) -> list[PagePeer]:
        return [peer for peer in self.peers.values() if peer.shown]

    def _is_looked_at(self) -> bool:
        return trio.current_time() - self._asked_at < _LOOKED_AT_S

    async def _find(self, nursery: trio.Nursery) -> None:
        """Take up peers that are new; one whose folder is gone stays as down."""
        found = await trio.to_thread.run_sync(peer_folders, self._named)
        known = {peer.folder for peer in self.peers.values()}
        mistaken = known.difference(found.values())
        for name in [name for name, one in self.peers.items() if one.folder in mistaken]:
            if self.peers[name].answered_at == float("-inf"):  # a swarm's folder, as it turned out
                self.peers.pop(name).end()
        for name, folder in found.items():
            if folder not in known and name not in self.peers:
                self.peers[name] = PagePeer(
                    name,
                    folder,
                    program=self._program,
                    is_looked_at=self._is_looked_at,
                )
                nursery.start_soon(self.peers[name].run)

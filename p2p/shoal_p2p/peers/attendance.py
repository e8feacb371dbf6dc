"""Attendance: tells which peers of the swarm joined and left.

a connection begins or ends ─▶ some seconds, until it is known whose it is ─▶ compared with before
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import trio

from shoal_p2p.net.interface import Host
from shoal_wire.types import PeerId

_SETTLE_S: Final = 2.0
"""A peer says soon after it connects which swarm it is of; one that reconnects was not away."""
SAID_S: Final = 20.0
"""Most have said by then of which swarm they are; others are looked at less often."""

Told = Callable[[Collection[PeerId]], None]


class Attendance:
    """Follows who is there, until `end`."""

    def __init__(
        self, host: Host, *, counts: Callable[[PeerId], bool], joined: Told, left: Told
    ) -> None:
        """`counts` says of a connected peer whether it is of the swarm."""
        self._host = host
        self._counts = counts
        self._joined = joined
        self._left = left
        self._changed = trio.Event()
        self._scope = trio.CancelScope()
        self._there: set[PeerId] = set()
        host.add_peer_callbacks(connected=self._note, disconnected=self._note)

    async def run(self) -> None:
        """Tell until cancelled, or `end`."""
        with self._scope:
            while True:
                with trio.move_on_after(SAID_S):
                    await self._changed.wait()
                self._changed = trio.Event()
                await trio.sleep(_SETTLE_S)
                self._look()

    def end(self) -> None:
        """Tell nothing more: who leaves from now on is left by this node."""
        self._scope.cancel()

    def _look(self) -> None:
        connected = self._host.connected_peers()
        # A peer once known to be of the swarm stays so until it goes.
        there = {one for one in connected if one in self._there or self._counts(one)}
        if joined := there - self._there:
            self._joined(joined)
        if left := self._there - there:
            self._left(left)
        self._there = there

    def _note(self, _peer_id: PeerId) -> None:
        self._changed.set()

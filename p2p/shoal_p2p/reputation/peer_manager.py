"""Applies reputation to a running peer: scores, bans, connection limits and the user's commands.

gossip ─▶ verdicts, misbehaviour ─▶ Reputation ─▶ host.ban
a connection above the limit ─▶ `ConnManager`: disconnects the least useful peer
socket ─▶ block · unblock · protect · unprotect
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import trio

from shoal_ipc.messages import ControlAction
from shoal_p2p.disk import KeptState
from shoal_p2p.events import EventSink
from shoal_p2p.intake.verdict_log import RefusalLog, VerdictLog
from shoal_p2p.net.address import parse_peer_id
from shoal_p2p.net.interface import Host
from shoal_p2p.reputation.conn_manager import ConnManager
from shoal_p2p.reputation.reputation import ListFullError, Reputation
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import Verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

REPUTATION = "reputation"
"""Name of the state."""


class ControlError(Exception):
    """A block, unblock, protect or unprotect command that cannot be carried out; one line."""


class PeerManager:
    """Scores all peers, bans those below the threshold, and saves both.

    Call `load` before the first connection, then ``await nursery.start(manager.run)``.
    """

    def __init__(
        self,
        *,
        host: Host,
        state: KeptState,
        protected: Iterable[PeerId],
        max_peers: int,
        wall_ms: Callable[[], int],
        is_relayed: Callable[[PeerId], bool] = lambda _peer: False,
        events: EventSink | None = None,
    ) -> None:
        """See `ConnManager` for `is_relayed` and `events`."""
        self._host = host
        self._state = state
        self._wall_ms = wall_ms
        self.verdicts = VerdictLog()
        """Counts of all verdicts, for views."""
        self.refusals = RefusalLog()
        """The most recent refusals."""
        self.reputation = Reputation(always_protected=protected)
        self.conn_manager = ConnManager(
            host=host,
            max_peers=max_peers,
            rating=self,
            is_relayed=is_relayed,
            events=events,
        )

    async def load(self) -> None:
        """Restore what was saved, including bans and blocks."""
        now = trio.current_time()
        await self._state.load(
            lambda text: self.reputation.restore(text, now, wall_ms=self._wall_ms())
        )
        bans = {
            peer_id: seconds
            for peer_id, seconds in self.reputation.banned(now).items()
            if not self.reputation.is_protected(peer_id)
        }
        bans |= dict.fromkeys(self.reputation.blocked, math.inf)
        for peer_id, seconds in bans.items():
            if _is_peer_id(peer_id):  # a file edited by hand may hold anything
                self._host.ban(peer_id, seconds=seconds)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Save changes periodically and when cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.conn_manager.run)
            task_status.started()
            await self._state.keep(self._text, urgent=lambda: self.reputation.num_bans)

    async def save(self) -> None:
        """Write the state."""
        await self._state.save(self._text())

    def _text(self) -> str:
        return self.reputation.to_json(trio.current_time(), wall_ms=self._wall_ms())

    # Called by gossip

    def score(self, peer_id: PeerId) -> float:
        """Return a peer's score for gossip, at most 0."""
        return self.reputation.score(peer_id, trio.current_time())

    def rank(self, peer_id: PeerId) -> float:
        """Return how valuable a connection to this peer is."""
        return self.reputation.rank(peer_id, trio.current_time())

    def is_protected(self, peer_id: PeerId) -> bool:
        """Return whether this peer is exempt from bans."""
        return self.reputation.is_protected(peer_id)

    def on_verdict(self, forwarder: PeerId, author: PeerId | None, judged: Verdict) -> None:
        """Count the verdict on a message, and charge or credit its signer and forwarder."""
        self.refusals.note(judged, signer=author, forwarder=forwarder, at_ms=self._wall_ms())
        now = trio.current_time()
        self.reputation.board.judge(judged, signer=author, forwarder=forwarder, now=now)
        self._ban_if_due(forwarder, now)
        if author is not None and author != forwarder:
            self._ban_if_due(author, now)
        # Counted last, so that another thread sees the ban before the count.
        self.verdicts.count(judged, signer=author)

    def on_behaviour(self, peer_id: PeerId, cause: Cause) -> None:
        """Charge misbehaviour that is not a validation result."""
        now = trio.current_time()
        self.reputation.board.charge(peer_id, cause, now)
        self._ban_if_due(peer_id, now)

    def _ban_if_due(self, peer_id: PeerId, now: float) -> None:
        seconds = self.reputation.ban_due(peer_id, now)
        if seconds is not None:
            log.warning("banned %s for %.0f s", peer_id, seconds)
            self._host.ban(peer_id, seconds=seconds)

    # The user's commands

    async def control(self, action: ControlAction, text: str) -> None:
        """Carry out a command from the socket, and save. Raises ControlError."""
        try:
            peer_id = parse_peer_id(text)
        except ValueError:
            raise ControlError(f"{text[:80]!r} is not a peer id") from None
        if peer_id == self._host.peer_id:
            raise ControlError(f"{peer_id} is this node itself")
        try:
            self._apply(action, peer_id)
        except ListFullError as error:
            raise ControlError(str(error)) from None
        await self.save()

    def _apply(self, action: ControlAction, peer_id: PeerId) -> None:
        match action:
            case ControlAction.BLOCK:
                self.reputation.block(peer_id)
                self._host.ban(peer_id, seconds=math.inf)
            case ControlAction.UNBLOCK:
                self.reputation.unblock(peer_id)
                self._host.unban(peer_id)
            case ControlAction.PROTECT:
                self.reputation.protect(peer_id)
                self._host.unban(peer_id)
            case ControlAction.UNPROTECT:
                self.reputation.unprotect(peer_id)


def _is_peer_id(text: str) -> bool:
    try:
        parse_peer_id(text)
    except ValueError:
        return False
    return True

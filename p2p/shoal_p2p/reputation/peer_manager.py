"""The reputation at work: judges what arrives, bans, makes room, keeps the file, takes orders.

gossip ─▶ verdicts, behaviour ─▶ Reputation ─▶ host.ban
a new connection over the bound ─▶ `ConnManager`: somebody goes
socket ─▶ block · unblock · protect · unprotect
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal_ipc.messages import ControlAction
from shoal_p2p.disk import KeptFile, Refused, say_refused
from shoal_p2p.intake.refusals import RefusalLog
from shoal_p2p.intake.verdict_log import VerdictLog
from shoal_p2p.net.address import parse_peer_id
from shoal_p2p.net.interface import Host
from shoal_p2p.reputation.conn_manager import ConnManager
from shoal_p2p.reputation.reputation import ListFullError, Reputation
from shoal_p2p.reputation.scoring import Cause
from shoal_p2p.threads import InThread
from shoal_wire.types import PeerId
from shoal_wire.verdict import Verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

REPUTATION_FILE = "reputation.json"


class ControlError(Exception):
    """An order that cannot be followed; one line."""


class PeerManager:
    """One peer's judgement of all others."""

    def __init__(
        self,
        *,
        host: Host,
        data_dir: Path,
        protected: Iterable[PeerId],
        max_peers: int,
        wall_ms: Callable[[], int],
        in_thread: InThread = trio.to_thread.run_sync,
        refused: Refused = say_refused,
        is_guest: Callable[[PeerId], bool] = lambda _peer: False,
        on_let_go: Callable[[PeerId], None] = lambda _peer: None,
    ) -> None:
        """`is_guest` and `on_let_go` are as `ConnManager` has them."""
        self._host = host
        self._file = KeptFile(data_dir / REPUTATION_FILE, in_thread=in_thread, refused=refused)
        self._wall_ms = wall_ms
        self.verdicts = VerdictLog()
        """Log of all verdicts, for views."""
        self.refusals = RefusalLog()
        """The latest of what was not taken."""
        self.reputation = Reputation(always_protected=protected)
        self.room = ConnManager(
            host=host,
            max_peers=max_peers,
            rank=self.rank,
            is_protected=self.is_protected,
            is_guest=is_guest,
            on_let_go=on_let_go,
        )

    async def load(self) -> None:
        """Take over what an earlier life has saved, bans and blocks included."""
        now = trio.current_time()
        await self._file.load(lambda text: self.reputation.take(text, now, wall_ms=self._wall_ms()))
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
        """Save what changed, now and then and at the end, until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.room.run)
            task_status.started()
            await self._file.keep(self._text, urgent=lambda: self.reputation.num_bans)

    async def save(self) -> None:
        """Write the file."""
        await self._file.save(self._text())

    def _text(self) -> str:
        return self.reputation.to_json(trio.current_time(), wall_ms=self._wall_ms())

    # What gossip tells

    def score(self, peer_id: PeerId) -> float:
        """Return a peer's points as gossip sees them, at most 0."""
        return self.reputation.score(peer_id, trio.current_time())

    def rank(self, peer_id: PeerId) -> float:
        """Return how much a connection to this peer is worth."""
        return self.reputation.rank(peer_id, trio.current_time())

    def is_protected(self, peer_id: PeerId) -> bool:
        """Return whether this peer may not be banned for its points."""
        return self.reputation.is_protected(peer_id)

    def on_verdict(self, forwarder: PeerId, author: PeerId | None, judged: Verdict) -> None:
        """Count one judged message, and charge or credit who answers for it."""
        self.refusals.note(judged, signer=author, forwarder=forwarder, at_ms=self._wall_ms())
        now = trio.current_time()
        self.reputation.board.judge(judged, signer=author, forwarder=forwarder, now=now)
        self._ban_if_due(forwarder, now)
        if author is not None and author != forwarder:
            self._ban_if_due(author, now)
        # At last: what is counted has had its consequences, for whoever looks from another thread.
        self.verdicts.count(judged, signer=author)

    def on_behaviour(self, peer_id: PeerId, cause: Cause) -> None:
        """Charge what no message shows."""
        now = trio.current_time()
        self.reputation.board.charge(peer_id, cause, now)
        self._ban_if_due(peer_id, now)

    def _ban_if_due(self, peer_id: PeerId, now: float) -> None:
        seconds = self.reputation.ban_due(peer_id, now)
        if seconds is not None:
            log.warning("%s is cut off for %.0f s", peer_id, seconds)
            self._host.ban(peer_id, seconds=seconds)

    # The user's orders

    async def control(self, action: ControlAction, text: str) -> None:
        """Follow an order from the socket, and save. Raises ControlError."""
        try:
            peer_id = parse_peer_id(text)
        except ValueError:
            raise ControlError(f"{text[:80]!r} is not a peer id") from None
        if peer_id == self._host.peer_id:
            raise ControlError(f"{peer_id} is this node itself")
        try:
            self._follow(action, peer_id)
        except ListFullError as error:
            raise ControlError(str(error)) from None
        await self.save()

    def _follow(self, action: ControlAction, peer_id: PeerId) -> None:
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

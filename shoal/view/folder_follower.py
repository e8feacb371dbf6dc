"""Requests the views of a node over its socket, and reads its folder. Blocks.

FolderFollower.now() ─▶ views, once ─┬─▶ LatestAnswers
    doctor, concurrently ────────────┘   (it takes seconds, so its latest answer is used)
metrics.jsonl: what is new in it
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from shoal.view.run import RunFile, RunReader
from shoal_base.node_folders import METRICS_FILE
from shoal_base.waits import MINUTE_S, REPLY_S
from shoal_ipc import messages as m
from shoal_ipc.answers.doctor import Doctor
from shoal_ipc.answers.form import read, to_json
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import Buffer, RolloutsView, Status
from shoal_ipc.answers.peer import Peers, Refusals, Scores
from shoal_ipc.answers.tasks import Tasks
from shoal_ipc.answers.views import VIEWS
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused, NodeUnavailable, Ticket
from shoal_p2p.data_dir import why_silent
from shoal_p2p.rollouts.ledger_file import LEDGER, left_in
from shoal_p2p.state_file import LAST_STATUS, STATE_FILE, read_state, state_written_at

SELDOM_S: Final = 5.0
"""Seconds between requests of expensive views, or while no page is open; a guess."""
_REQUESTED: Final[Mapping[str, Mapping[str, Any]]] = {
    "status": {},
    "peers": {},
    "scores": {},
    "buffer": {},
    "ledger": {},
    "refusals": {},
    "tasks": {},
    "rollouts": {"limit": 50, "questions": False, "texts": False},
}
"""The views that are requested each time, with their options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestAnswers:
    """The latest answer of each view, or None. For a node that is down, its last answers."""

    status: Status | None = None
    peers: Peers | None = None
    scores: Scores | None = None
    buffer: Buffer | None = None
    doctor: Doctor | None = None
    rollouts: RolloutsView | None = None
    ledger: Ledger | None = None
    refusals: Refusals | None = None
    tasks: Tasks | None = None
    down_since_unix: float | None = None
    """Time since when it does not answer; None while it does, 0 if it was never seen."""
    silent: str = ""
    """Why it does not answer although its process runs; otherwise empty."""
    run: RunFile = field(default_factory=RunFile)


class FolderFollower:
    """Follows the node of one folder, across its stops and restarts."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._client = inspector(data_dir)
        self._known: dict[str, Any] = {}
        self._missing: set[str] = set()
        """Views that this peer does not have."""
        self._down_since: float | None = None
        self._doctor = _Doctor(data_dir)
        self._run = RunReader(data_dir / METRICS_FILE)
        self._run_lock = threading.Lock()

    def now(self) -> LatestAnswers:
        """Return the latest answers; for a node that is down, its last ones."""
        try:
            self._request_all()
            self._doctor.poll(reset=self._down_since is not None)
            self._down_since = None
        except (NodeUnavailable, ValueError):
            self._note_down()
        with self._run_lock:
            self._run.refresh()
            run = self._run.facts()
        doctor = self._doctor.latest if self._down_since is None else None
        is_down = self._down_since is not None
        return LatestAnswers(
            **self._known,
            doctor=doctor,
            down_since_unix=self._down_since,
            silent=(why_silent(self._data_dir) or "") if is_down else "",
            run=run,
        )

    @property
    def rows(self) -> int:
        """Counter of changes to the run's curves; a reader requests them again when it grows."""
        return self._run.version

    def curves(self) -> dict[str, Any]:
        """Return the run's curves as they were at the latest `now`. For any thread."""
        with self._run_lock:
            return self._run.curves()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._doctor.close()

    def _request_all(self) -> None:
        if not self._client.ensure():
            raise NodeUnavailable("no node answers")
        was_down = self._down_since is not None
        known = {} if was_down else dict(self._known)
        missing = set() if was_down else self._missing  # it may be another node
        for view, options in _REQUESTED.items():
            if view in missing:
                continue
            try:
                known[view] = read(VIEWS[view], self._client.inspect(view, **options))
            except NodeRefused:
                missing.add(view)
        self._known, self._missing = known, missing

    def _note_down(self) -> None:
        if self._down_since is not None:
            return
        if self._known:
            self._down_since = time.time()
            return
        left = left_behind(self._data_dir)
        self._down_since = left.since_unix
        if left.status is not None:
            self._known["status"] = read(Status, left.status)
        if left.ledger is not None:
            self._known["ledger"] = read(Ledger, to_json(left.ledger))


class _Doctor:
    """Requests doctor, one request at a time, without waiting for the answer."""

    def __init__(self, data_dir: Path) -> None:
        self._client = inspector(data_dir)
        self._ticket: Ticket | None = None
        self._requested_at = float("-inf")
        self.latest: Doctor | None = None

    def poll(self, *, reset: bool) -> None:
        """Store an answer that has arrived, request the next if due; `reset` starts over."""
        if reset:
            self.close()
        with suppress(NodeUnavailable, NodeRefused, ValueError):  # the other connection reports it
            ticket = self._ticket
            if ticket is not None and self._client.answered(ticket):
                self._ticket = None
                reply = self._client.answer(ticket, m.InspectReply)
                self.latest = read(Doctor, json.loads(reply.json))
            elif ticket is None and time.monotonic() - self._requested_at >= SELDOM_S:
                self._requested_at = time.monotonic()
                # Doctor asks other nodes about this one, so an answer may be a minute old.
                within = json.dumps({"within_s": MINUTE_S})
                self._ticket = self._client.send(m.Inspect(view="doctor", options_json=within))

    def close(self) -> None:
        """Drop pending requests and answers, and close the connection."""
        self._client.close()
        self._ticket, self._requested_at, self.latest = None, float("-inf"), None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastState:
    """Data in the folder of a node that has stopped."""

    since_unix: float
    """Time of its last write; 0 if there never was a node."""
    status: dict[str, Any] | None
    """None for a node that was killed, or if it is older than the last run."""
    ledger: Ledger | None
    """State when it trained last."""


def left_behind(data_dir: Path) -> LastState:
    """Return the last state in a folder."""
    status, state_file = None, data_dir / STATE_FILE
    try:
        last = json.loads(read_state(state_file, LAST_STATUS) or b"")
        status = last if isinstance(last, dict) else None
    except (sqlite3.Error, OSError, ValueError, RecursionError):
        pass
    times = [state_written_at(state_file, one) for one in (LAST_STATUS, LEDGER)]
    return LastState(
        since_unix=max(*times, _written(data_dir / METRICS_FILE)),
        status=status,
        ledger=left_in(data_dir),
    )


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def inspector(data_dir: Path, timeout_s: float = REPLY_S) -> NodeClient:
    """Return a client for the views of a folder's node."""
    return NodeClient(data_dir / SOCKET_NAME, role=m.Role.INSPECTOR, timeout_seconds=timeout_s)

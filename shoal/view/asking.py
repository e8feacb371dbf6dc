"""Asks a node for what is shown of it, over its socket and from its folder. Blocks.

Asking.now() ─▶ views, once ─┬─▶ Answers
    doctor, beside it ───────┘   (it takes seconds: of it there is the latest)
metrics.jsonl: its head once, its tail as it grows
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from p2p.data_dir import LAST_STATUS_FILE
from p2p.rollouts.ledger_file import LEDGER_FILE, left_in
from shoal.view.answers import Answer, Answers
from shoal.view.reading import name
from shoal_base.files import read_at_most
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused, NodeUnavailable

METRICS_FILE = "metrics.jsonl"
DOCTOR_SECONDS = 5.0
"""Between two answers of doctor."""
WITHIN_SECONDS = 60.0
"""What others said of the node may be so old."""
_TIMEOUT_SECONDS = 10.0
_HEAD_BYTES = 1 << 18
_TAIL_BYTES = 1 << 18
_KEPT_EVENTS = 1024
_LAST_STATUS_BYTES = 1 << 20

_VIEWS: Mapping[str, Mapping[str, Any]] = {
    "status": {},
    "peers": {},
    "scores": {},
    "contributions": {},
    "buffer": {},
    "ledger": {},
    "refusals": {},
    "rollouts": {"limit": 50, "questions": False, "texts": False},
}


class Asking:
    """What one folder's node answers, from its first answer over its end to its return."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._client = _client(data_dir)
        self._known: dict[str, Answer] = {}
        self._missing: set[str] = set()
        """Views that this peer has not."""
        self._down_since: float | None = None
        self._doctor = _Doctor(data_dir)
        self._metrics = _Metrics(data_dir / METRICS_FILE)

    def now(self) -> Answers:
        """Return the latest of everything; of a node that is down what it answered last."""
        try:
            self._ask_all()
            self._down_since = None
            self._doctor.ask_if_due()
        except (NodeUnavailable, ValueError):
            self._note_down()
        doctor = self._doctor.latest if self._down_since is None else None
        return Answers(
            **self._known,
            doctor=doctor,
            down_since_unix=self._down_since,
            metrics=self._metrics.now(),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask_all(self) -> None:
        if not self._client.ensure():
            raise NodeUnavailable("nobody is there")
        was_down = self._down_since is not None
        known = {} if was_down else dict(self._known)
        missing = set() if was_down else self._missing  # another, perhaps
        for view, options in _VIEWS.items():
            if view in missing:
                continue
            try:
                known[view] = ask(self._client, view, **options)
            except NodeRefused:
                missing.add(view)
        self._known, self._missing = known, missing
        if was_down:
            self._doctor.forget()

    def _note_down(self) -> None:
        if self._down_since is not None:
            return
        if self._known:
            self._down_since = time.time()
            return
        self._down_since, self._known = _left(self._data_dir)


def ask(client: NodeClient, view: str, **options: Any) -> Answer:
    """Return the answer for a view.

    Raises:
        NodeUnavailable, NodeRefused, ValueError: there is none.
    """
    reply = client.call(m.Inspect(view=view, options_json=json.dumps(options)), m.InspectReply)
    found = json.loads(reply.json)
    if not isinstance(found, dict):
        raise ValueError(f"view {view!r} is no object")
    return found


class _Doctor:
    """Asks doctor in a thread of its own, one at a time."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._thread: threading.Thread | None = None
        self._asked = float("-inf")
        self.latest: Answer | None = None

    def forget(self) -> None:
        self.latest, self._asked = None, float("-inf")

    def ask_if_due(self) -> None:
        is_asking = self._thread is not None and self._thread.is_alive()
        if is_asking or time.monotonic() - self._asked < DOCTOR_SECONDS:
            return
        self._asked = time.monotonic()
        self._thread = threading.Thread(target=self._ask, daemon=True, name="doctor")
        self._thread.start()

    def _ask(self) -> None:
        client = _client(self._data_dir)
        try:
            self.latest = ask(client, "doctor", within_s=WITHIN_SECONDS)
        except (NodeUnavailable, NodeRefused, ValueError):
            pass  # the other connection says that it is down
        finally:
            client.close()


class _Metrics:
    """The first events of a metrics file, and its latest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        """The file and its size."""
        self._first: Mapping[str, Any] | None = None
        """Its first evaluation."""
        self._events: tuple[Mapping[str, Any], ...] = ()

    def now(self) -> tuple[Mapping[str, Any], ...]:
        try:
            stat = self._path.stat()
            if (stat.st_ino, stat.st_size) != self._seen:
                inode, size = self._seen or (0, 0)
                if inode != stat.st_ino or size > stat.st_size:
                    self._first = None  # another file: a run from its start, or a thinned one
                self._events = self._read(stat.st_size)
                self._seen = (stat.st_ino, stat.st_size)
        except OSError:
            return ()
        return self._events

    def _read(self, size: int) -> tuple[Mapping[str, Any], ...]:
        with self._path.open("rb") as file:
            if self._first is None:
                head = _events(file.read(_HEAD_BYTES))
                self._first = next((e for e in head if e.get("event") == "held_out"), None)
            start = max(0, size - _TAIL_BYTES)
            file.seek(start)
            tail = file.read(_TAIL_BYTES)
        events = _events(tail.partition(b"\n")[2] if start else tail)
        latest = deque(events, maxlen=_KEPT_EVENTS)
        if self._first is None or self._first in latest:
            return tuple(latest)
        return (self._first, *latest)


def _events(data: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the whole lines that are events."""
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def _left(data_dir: Path) -> tuple[float, dict[str, Answer]]:
    """Return since when there is nobody, 0 where nobody ever was, and the views that were left.

    A node that was killed has left no status, or an older one: what it wrote last says when it was.
    """
    views: dict[str, Answer] = {}
    try:
        last = json.loads(read_at_most(data_dir / LAST_STATUS_FILE, _LAST_STATUS_BYTES))
        views |= {"status": last} if isinstance(last, dict) else {}
    except (OSError, ValueError, RecursionError):
        pass
    ledger = left_in(data_dir, name(views.get("status", {}), "peer_id"))
    views |= {} if ledger is None else {"ledger": ledger}
    times = (_written(data_dir / one) for one in (LAST_STATUS_FILE, LEDGER_FILE, METRICS_FILE))
    return max(times), views


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _client(data_dir: Path) -> NodeClient:
    return NodeClient(
        data_dir / SOCKET_NAME, role=m.Role.INSPECTOR, timeout_seconds=_TIMEOUT_SECONDS
    )

"""One peer as the page knows it: asked by one thread, for all browsers together.

    each second while somebody looks, else each five ─▶ `FolderFollower` ─▶ `ShownPeer`
    metrics.jsonl ─▶ the curves, and how many rows they have

What it costs the peer does not depend on how many look. A peer that is down keeps what it showed
last, and says since when.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from shoal.page.groups import Groups
from shoal.page.history import History
from shoal.view.asking import FolderFollower, LatestAnswers
from shoal.view.build import build
from shoal.view.health import Healthy, healthy, ready
from shoal.view.metrics import metrics_text
from shoal.view.model import ShownPeer
from shoal.view.run import METRICS_FILE
from shoal_ipc.answers.form import to_json
from shoal_ipc.answers.node import TrainerView

LOOKED_AT_S: Final = 1.0  # the trainer tells its node as often
UNSEEN_S: Final = 5.0  # a guess: a scrape of Prometheus comes each 15 s

_UNKNOWN: Final = Healthy(ok=False, says="not asked yet")

Block = dict[str, Any]


class PagePeer:
    """Asks one peer, and keeps what it showed last."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        program: str,
        is_looked_at: Callable[[], bool],
    ) -> None:
        """Ask nothing yet."""
        self.name = name
        self.folder = folder
        self.groups = Groups(folder)
        self._program = program
        self._is_looked_at = is_looked_at
        self._asking = FolderFollower(folder)
        self._history = History(folder / METRICS_FILE)
        self._history_lock = threading.Lock()
        self._curves: tuple[int, dict[str, Any]] | None = None
        self._known: tuple[ShownPeer, LatestAnswers] | None = None
        self._ended = threading.Event()
        self.shown: Block = {}
        """The peer as JSON; empty before the first answer."""
        self.answered_at = -float("inf")
        """Time when it answered last, by the monotonic clock."""
        self.rows = 0
        """Grows with the curves: a browser asks for them anew when it has."""

    def start(self) -> None:
        """Ask from now on, in a thread that ends with the process, or with `end`."""
        threading.Thread(target=self._run, daemon=True, name=self.name).start()

    def end(self) -> None:
        """Ask no more."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.turn()
            self._ended.wait(LOOKED_AT_S if self._is_looked_at() else UNSEEN_S)
        self._asking.close()

    def turn(self) -> None:
        """Ask once."""
        fresh = self._ask()
        if fresh["right"]["state"] != "down":
            self.answered_at = time.monotonic()
        self.shown = fresh
        with self._history_lock:
            if self._history.refresh():
                self.rows = self._history.version

    def curves(self) -> dict[str, Any]:
        """Return the run's curves, thinned."""
        with self._history_lock:
            version = self._history.version
            if self._curves is None or self._curves[0] != version:
                self._curves = (version, self._history.shown())
            return self._curves[1]

    def _ask(self) -> Block:
        answers = self._asking.now()
        shown = build(
            answers, data_dir=str(self.folder), at_unix=time.time(), program=self._program
        )
        self._known = (shown, answers)
        block: Block = to_json(shown)
        return block

    def metrics(self) -> str:
        """Return the answer to a scrape; empty before the first answer."""
        return "" if self._known is None else metrics_text(*self._known)

    def health(self) -> Healthy:
        """Return whether it answers."""
        return _UNKNOWN if self._known is None else healthy(self._known[0])

    def readiness(self) -> Healthy:
        """Return whether it answers and its trainer is at work."""
        if self._known is None:
            return _UNKNOWN
        shown, answers = self._known
        trainer = None if answers.status is None else answers.status.trainer
        return ready(shown, (trainer or TrainerView()).state)

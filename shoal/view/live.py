"""The live view of one peer: one thread requests it for all viewers.

    every second while it is viewed, otherwise every five ─▶ `FolderFollower` ─▶ `ShownPeer`, curves

The cost to the peer does not depend on the number of viewers. For a peer that is down, the last
view is stored, with its time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from shoal.view.blocks import BLOCKS, parts_of
from shoal.view.build import build
from shoal.view.folder_follower import SELDOM_S, FolderFollower, inspector
from shoal.view.model import NodeView
from shoal_base.bounded import FEW, BoundedDict
from shoal_base.waits import RETRY_S
from shoal_ipc.answers.form import read, to_json
from shoal_ipc.answers.node import RolloutsView, Status, TrainerView
from shoal_ipc.client import NodeRefused, NodeUnavailable

_AT_WORK: Final = ("training", "connected", "generating", "finished", "disabled")


class LivePeer:
    """Requests the view of one peer, and stores the latest."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        program: str,
        is_looked_at: Callable[[], bool] = lambda: True,
    ) -> None:
        """Prepare; `start` begins the requests."""
        self.name = name
        self.folder = folder
        self._program = program
        self._is_looked_at = is_looked_at
        self.follower = FolderFollower(folder)
        self._opened = BoundedDict[str, Any](FEW)
        self._opening = threading.Lock()
        self._opener = inspector(folder)
        self.known: NodeView | None = None
        """Its latest view; None before the first."""
        self._ended = threading.Event()
        self.shown: dict[str, Any] = {}
        """The peer as JSON; empty before the first answer."""
        self.answered_at = -float("inf")
        """Monotonic time of its last answer."""

    def start(self) -> None:
        """Start a thread that requests views until the process ends, or `end` is called."""
        threading.Thread(target=self._run, daemon=True, name=self.name).start()

    def end(self) -> None:
        """Stop the requests."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.poll()
            self._ended.wait(RETRY_S if self._is_looked_at() else SELDOM_S)
        self.follower.close()

    def poll(self) -> NodeView:
        """Request once; return `known` afterwards."""
        answers, now = self.follower.now(), time.time()
        shown = build(answers, data_dir=str(self.folder), at_unix=now, program=self._program)
        self.known = NodeView(shown, answers)
        if shown.health.state != "down":
            self.answered_at = time.monotonic()
        blocks = {name: to_json(parts_of(name, self.known, "page")) for name in BLOCKS}
        more = {"name": self.name, "rows": self.follower.rows, "blocks": blocks}
        self.shown = {**to_json(shown), **more}
        return self.known

    def group(self, group_id: str) -> Any:
        """Return a group with its texts, as JSON: current, or as it was when it was opened.

        None if it is no longer known. The peer regenerates its question, which takes
        time of its task worker.
        """
        with self._opening, suppress(NodeUnavailable, NodeRefused, ValueError):
            answer = self._opener.inspect("rollouts", group=group_id)
            for found in read(RolloutsView, answer).rollouts:
                self._opened[group_id] = to_json(found)
        return self._opened.get(group_id)

    def health(self, *, at_work: bool = False) -> tuple[bool, str]:
        """Return whether it answers, and the reason; with `at_work` whether its trainer works, too.

        A fault that no restart repairs does not count.
        """
        if self.known is None:
            return False, "no answer yet"
        shown, answers = self.known
        is_up, says = shown.health.state != "down", shown.health.message
        trainer = (answers.status or Status()).trainer or TrainerView()
        if not is_up or not at_work or shown.kind != "node" or trainer.state in _AT_WORK:
            return is_up, says
        return False, trainer.last_error or f"trainer {trainer.state or 'not started'}"

"""One group that was said, whole: question and completions, read over a peer's socket.

What a browser has opened stays after the peer's end, or when it has forgotten it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from shoal_ipc import messages as m
from shoal_ipc.answers.form import read
from shoal_ipc.answers.node import Rollout, RolloutsView
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused, NodeUnavailable

_ANSWER_S: Final = 5.0  # a guess: the task worker makes a question again
_KEPT_OPENED: Final = 64  # groups that a person has opened; a guess


class Groups:
    """The groups of one peer. Blocks: for one thread at a time."""

    def __init__(self, folder: Path) -> None:
        """Ask nothing yet."""
        self._client = NodeClient(
            folder / SOCKET_NAME, role=m.Role.INSPECTOR, timeout_seconds=_ANSWER_S
        )
        self._opened: dict[str, Rollout] = {}

    def one(self, group_id: str) -> Rollout | None:
        """Return a group as it is now; None where it is not known any more.

        One question at a time is made again by the peer, whose task worker it costs.
        """
        with suppress(NodeUnavailable, NodeRefused, ValueError):
            answer = self._client.inspect("rollouts", group=group_id)
            for found in read(RolloutsView, answer).rollouts:
                self._opened[group_id] = found
        while len(self._opened) > _KEPT_OPENED:
            del self._opened[next(iter(self._opened))]
        return self._opened.get(group_id)

"""What was said: a peer's latest groups, filtered, and one of them whole.

    browser ─▶ the list of at most two seconds ago ─▶ rows that fit
    browser ─▶ one group by its id ─▶ question and completions, one question at a time

After the peer's end the last list stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from shoal_ipc import messages as m
from shoal_ipc.answers.form import read, to_json
from shoal_ipc.answers.node import Rollout, Rollouts
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused, NodeUnavailable

MAX_GROUPS: Final = 200  # what a node answers at most
_FRESH_S: Final = 2.0  # browsers that ask together share one answer
_ANSWER_S: Final = 5.0  # a guess: the task worker makes a question again
_KEPT_OPENED: Final = 64  # groups that a person has opened; a guess

_AWAY: Final = (NodeUnavailable, NodeRefused, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which groups are asked for; what is empty asks for all."""

    family: str = ""
    publisher: str = ""
    """A peer id, or its end."""
    reward: str = ""
    """some, none or mixed of its answers earned something; unknown: not scored yet."""
    whose: str = ""
    """mine or others."""

    def fits(self, row: Rollout) -> bool:
        """Whether a group is one of them."""
        return (
            self.family in ("", row.family)
            and row.publisher.endswith(self.publisher)
            and (not self.whose or (self.whose == "mine") == row.own)
            and (not self.reward or self.reward == kind_of(_rewards(row)))
        )


def kind_of(rewards: Sequence[float | None]) -> str:
    """Return in a word what a group's answers earned."""
    known = [reward for reward in rewards if reward is not None]
    if not known or len(known) < len(rewards):
        return "unknown"
    if min(known) != max(known):
        return "mixed"
    return "some" if known[0] > 0 else "none"


class Groups:
    """The latest groups of one peer. Its methods block: for a thread, one at a time."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.monotonic) -> None:
        """Ask nothing yet."""
        self._client = NodeClient(
            folder / SOCKET_NAME, role=m.Role.INSPECTOR, timeout_seconds=_ANSWER_S
        )
        self._now = now
        self._rows: tuple[Rollout, ...] = ()
        self._at = float("-inf")
        self._opened: dict[str, Rollout] = {}
        """What was read, which stays to be read when the peer has forgotten it."""

    def list(self, which: Filter) -> dict[str, Any]:
        """Return the groups that fit, the newest first, and what can be chosen from."""
        self._refresh()
        rows = self._rows[::-1]
        return {
            "rows": [_brief(row) for row in rows if which.fits(row)],
            "of": len(rows),
            "families": sorted({row.family for row in rows}),
            "publishers": sorted({row.publisher for row in rows}),
        }

    def one(self, group_id: str) -> Rollout | None:
        """Return a group whole, as it is now; None where it is not known any more.

        One question at a time is made again by the peer, whose task worker it costs.
        """
        with suppress(*_AWAY):
            for found in self._ask(group=group_id):
                self._opened[group_id] = found
        while len(self._opened) > _KEPT_OPENED:
            del self._opened[next(iter(self._opened))]
        return self._opened.get(group_id)

    def _ask(self, **options: Any) -> tuple[Rollout, ...]:
        """Return what the peer answers; raises one of _AWAY where it does not."""
        return read(Rollouts, self._client.inspect("rollouts", **options)).rollouts

    def _refresh(self) -> None:
        if self._now() < self._at + _FRESH_S:
            return
        self._at = self._now()
        with suppress(*_AWAY):
            self._rows = self._ask(limit=MAX_GROUPS, questions=False)


def _rewards(row: Rollout) -> list[float | None]:
    return [one.reward for one in row.completions]


def _brief(row: Rollout) -> dict[str, Any]:
    """Return what a list shows of a group: everything but its texts."""
    kept: dict[str, Any] = to_json(replace(row, completions=(), question=None))
    rewards = _rewards(row)
    return {**kept, "completions": len(rewards), "rewards": rewards, "earned": kind_of(rewards)}

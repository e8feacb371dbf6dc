"""What was said: a peer's latest groups, filtered, and one of them whole.

    browser ─▶ the list of at most two seconds ago ─▶ rows that fit
    browser ─▶ one group by its id ─▶ question and completions, one question at a time

After the peer's end the last list stays.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal.page.inert import inert
from shoal.view.asking import ask
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused, NodeUnavailable

MAX_GROUPS: Final = 200
_FRESH_S: Final = 2.0
_ANSWER_S: Final = 5.0
_KEPT_OPENED: Final = 64

Row = dict[str, Any]


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

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether a group is one of them."""
        rewards = [one.get("reward") for one in row.get("completions", ())]
        return (
            self.family in ("", row.get("family"))
            and str(row.get("publisher", "")).endswith(self.publisher)
            and (not self.whose or (self.whose == "mine") == bool(row.get("own")))
            and (not self.reward or self.reward == kind_of(rewards))
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
        self._rows: list[Row] = []
        self._at = float("-inf")
        self._opened: dict[str, Row] = {}
        """What was read, which stays to be read when the peer has forgotten it."""

    def list(self, which: Filter) -> dict[str, Any]:
        """Return the groups that fit, the newest first, and what can be chosen from."""
        self._refresh()
        rows = self._rows[::-1]
        return {
            "rows": [_brief(row) for row in rows if which.fits(row)],
            "of": len(rows),
            "families": sorted({str(row.get("family", "")) for row in rows}),
            "publishers": sorted({str(row.get("publisher", "")) for row in rows}),
        }

    def one(self, group_id: str) -> Row | None:
        """Return a group whole, as it is now; None where it is not known any more.

        One question at a time is made again by the peer, whose task worker it costs.
        """
        try:
            view = ask(self._client, "rollouts", group=group_id)
        except (NodeUnavailable, NodeRefused, ValueError):
            return self._opened.get(group_id)
        rows = view.get("rollouts") or ()
        found = next((inert(row) for row in rows if row.get("group_id") == group_id), None)
        if found is None:
            return self._opened.get(group_id)
        self._opened[group_id] = found
        while len(self._opened) > _KEPT_OPENED:
            del self._opened[next(iter(self._opened))]
        return found

    def _refresh(self) -> None:
        if self._now() < self._at + _FRESH_S:
            return
        self._at = self._now()
        try:
            view = ask(self._client, "rollouts", limit=MAX_GROUPS, questions=False)
        except (NodeUnavailable, NodeRefused, ValueError):
            return
        rows = view.get("rollouts")
        self._rows = inert(rows) if isinstance(rows, list) else []


def _brief(row: Row) -> Row:
    """Return what a list shows of a group: everything but its texts."""
    rewards = [one.get("reward") for one in row.get("completions", ())]
    kept = {key: part for key, part in row.items() if key not in ("completions", "question")}
    return {**kept, "completions": len(rewards), "rewards": rewards, "earned": kind_of(rewards)}


def as_json(value: Any) -> bytes:
    """Return JSON in ASCII."""
    return json.dumps(value, separators=(",", ":")).encode()

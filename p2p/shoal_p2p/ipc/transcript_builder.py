"""Completions of several turns as transcripts, with the environment's messages.

    text of a completion ─▶ messages ─▶ worker.play, once, within bounds ─▶ turns of both sides

The environment's messages are not on the wire. This node's task worker replays them on request. If
it is busy, or a limit is reached, only the policy's messages are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import Final

import trio

from shoal_base.bounded import FEW
from shoal_ipc.answers.node import TurnRow
from shoal_p2p.intake.validation import TRUNCATION_MARK
from shoal_p2p.parts import Worker
from shoal_tasks.errors import TaskError
from shoal_tasks.spec import FamilySpec
from shoal_tasks.turns import MAX_TURNS, SEPARATOR
from shoal_tasks.types import PlayRequest
from shoal_tasks.wire_tasks import coordinates_of
from shoal_wire.types import RolloutGroup

MAX_OBSERVED_CHARS: Final = 1 << 20
"""Most characters from environments in one reply; games beyond it show only the policy's turns."""
WORKER_S: Final = 2.0
"""Longest wait for the task worker, in seconds: a reader of a view does not wait much longer."""


class TranscriptBuilder:
    """Turns completions of games into rows of the policy's and the environment's turns."""

    def __init__(self, worker: Worker, families: Callable[[], Sequence[FamilySpec]]) -> None:
        """`families` returns those that `worker` knows now."""
        self._worker = worker
        self._families = families

    async def of(self, groups: Sequence[RolloutGroup]) -> list[list[tuple[TurnRow, ...] | None]]:
        """Return each completion's turns, group by group; None for one that is not a game."""
        games = frozenset(spec.name for spec in self._families() if spec.is_environment)
        requests = [self._requests(group, games) for group in groups]
        replies = iter(await self._replayed(list(chain.from_iterable(requests))))
        found: list[list[tuple[TurnRow, ...] | None]] = []
        for group, group_requests in zip(groups, requests, strict=True):
            texts = [split_bounded(completion.text) for completion in group.completions]
            found.append(
                [_rows(messages, next(replies)) for messages in texts]
                if group_requests
                else [None] * len(texts)
            )
        return found

    @staticmethod
    def _requests(group: RolloutGroup, games: frozenset[str]) -> list[PlayRequest]:
        task = group.task
        if task.inline is not None or task.family not in games:
            return []
        coordinates = coordinates_of(task)
        return [
            PlayRequest(task=coordinates, messages=_playable(completion.text))
            for completion in group.completions
        ]

    async def _replayed(self, requests: Sequence[PlayRequest]) -> list[tuple[str, ...]]:
        """Return the environment's messages in each game, within the limits."""
        nothing: list[tuple[str, ...]] = [()] * len(requests)
        if not requests:
            return nothing
        # The latest groups are last and matter most. A shipped game takes a millisecond.
        first = max(0, len(requests) - FEW)
        with trio.move_on_after(WORKER_S):
            try:
                plays = await self._worker.play(requests[first:])
            except TaskError:
                return nothing
            found, budget = nothing, MAX_OBSERVED_CHARS
            for i in reversed(range(len(plays))):
                budget -= sum(map(len, plays[i].observations))
                if budget < 0:
                    break
                found[first + i] = plays[i].observations
            return found
        return nothing


def split_bounded(text: str) -> list[str]:
    """Return a completion's messages; text beyond `MAX_TURNS` of them is one more."""
    return text.split(SEPARATOR, MAX_TURNS)


def _playable(text: str) -> tuple[str, ...]:
    """Return the complete messages: the environment would answer a truncated one differently."""
    messages = split_bounded(text)
    return tuple(messages[:-1] if text.endswith(TRUNCATION_MARK) else messages)


def _rows(messages: Sequence[str], replies: Sequence[str]) -> tuple[TurnRow, ...]:
    rows: list[TurnRow] = []
    for message, answer in zip_longest(messages, replies):
        rows.append(TurnRow(role="policy", text=message))
        if answer is not None:
            rows.append(TurnRow(role="environment", text=answer))
    return tuple(rows)

"""Completions of several turns as dialogues, with what the environment answered.

    text of a completion ─▶ messages ─▶ worker.play, once, within bounds ─▶ turns of both sides

No environment's words are on the wire. They are made again only when somebody looks, by this node's
own task worker; where it is busy, or a bound is reached, the policy's messages stand alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Final

import trio

from shoal_base.bounded import FEW
from shoal_ipc.answers.node import TurnRow
from shoal_p2p.intake.weight import TRUNCATION_MARK
from shoal_p2p.parts import Worker
from shoal_tasks.errors import TaskError
from shoal_tasks.spec import FamilySpec
from shoal_tasks.turns import MAX_TURNS, SEPARATOR
from shoal_tasks.types import PlayRequest
from shoal_tasks.wire_tasks import coordinates_of
from shoal_wire.types import RolloutGroup

MAX_OBSERVED_CHARS: Final = 1 << 20
"""Most characters of environments in one answer; games beyond it show the policy's side alone."""
WORKER_S: Final = 2.0
"""Longest wait for the task worker, in seconds: who asks for a view does not wait much longer."""


class TranscriptBuilder:
    """Turns completions of environments into rows of both sides."""

    def __init__(self, worker: Worker, families: Sequence[FamilySpec]) -> None:
        """`families` are those that `worker` knows."""
        self._worker = worker
        self._games = frozenset(spec.name for spec in families if spec.is_environment)

    async def of(self, groups: Sequence[RolloutGroup]) -> list[list[tuple[TurnRow, ...] | None]]:
        """Return each completion's turns, group by group; None where it is no game."""
        requests = [self._requests(group) for group in groups]
        heard = iter(await self._replayed(list(chain.from_iterable(requests))))
        found: list[list[tuple[TurnRow, ...] | None]] = []
        for group, asked in zip(groups, requests, strict=True):
            said = [split_bounded(completion.text) for completion in group.completions]
            found.append(
                [_rows(messages, next(heard)) for messages in said] if asked else [None] * len(said)
            )
        return found

    def _requests(self, group: RolloutGroup) -> list[PlayRequest]:
        task = group.task
        if task.inline is not None or task.family not in self._games:
            return []
        coordinates = coordinates_of(task)
        return [
            PlayRequest(task=coordinates, messages=_playable(completion.text))
            for completion in group.completions
        ]

    async def _replayed(self, asked: Sequence[PlayRequest]) -> list[tuple[str, ...]]:
        """Return the environments' answers to each game, as far as the bounds allow."""
        nothing: list[tuple[str, ...]] = [()] * len(asked)
        if not asked:
            return nothing
        # The latest groups stand last, and are looked at first. A shipped game takes a millisecond.
        first = max(0, len(asked) - FEW)
        with trio.move_on_after(WORKER_S):
            try:
                plays = await self._worker.play(asked[first:])
            except TaskError:
                return nothing
            found, room = nothing, MAX_OBSERVED_CHARS
            for place in reversed(range(len(plays))):
                room -= sum(map(len, plays[place].observations))
                if room < 0:
                    break
                found[first + place] = plays[place].observations
            return found
        return nothing


def split_bounded(text: str) -> list[str]:
    """Return a completion's messages; what a stranger sends beyond the most is one more."""
    return text.split(SEPARATOR, MAX_TURNS)


def _playable(text: str) -> tuple[str, ...]:
    """Return the messages that are known whole: a cut one would be answered otherwise."""
    messages = split_bounded(text)
    return tuple(messages[:-1] if text.endswith(TRUNCATION_MARK) else messages)


def _rows(messages: Sequence[str], heard: Sequence[str]) -> tuple[TurnRow, ...]:
    rows: list[TurnRow] = []
    for message, answer in zip_longest(messages, heard):
        rows.append(TurnRow(role="policy", text=message))
        if answer is not None:
            rows.append(TurnRow(role="environment", text=answer))
    return tuple(rows)

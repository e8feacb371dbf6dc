"""Events beside a run's rounds that may explain its curve: starts, models, peers. Pure.

    a start · a trainer's return · another model · who joins, who leaves ─▶ marks, each at a round

What is alike within a minute is one mark. Beyond the bound those two of a kind become one that lie
nearest to each other, so that what is kept spans the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from typing_extensions import TypedDict

from shoal_ipc.answers.learning import Mark
from shoal_wire.limits import MAX_NAME_BYTES

MAX_MARKS: Final = 128
"""Bound on own marks, and on peers' marks: peers that come and go crowd out no start."""
MAX_ABOUT: Final = 4
"""Peers, or models, that a mark names; it counts them all."""
MINUTE_MS: Final = 60_000
WINDOW_MINUTES: Final = 60
"""The latest minutes that are told apart, of marks, of networks and of the ledger."""


class MarkKind(StrEnum):
    """The kind of event."""

    STARTED = "started"
    """The node itself."""
    TRAINER = "trainer"
    """Another trainer process took the run up, while the node was there."""
    MODEL = "model"
    """The trainer trains another model."""
    JOINED = "joined"
    LEFT = "left"


_STARTS: Final = (MarkKind.STARTED, MarkKind.TRAINER)
_OWN: Final = (*_STARTS, MarkKind.MODEL)
_OF_PEERS: Final = (MarkKind.JOINED, MarkKind.LEFT)


def _both(first: Mark, second: Mark) -> Mark:
    """Return two marks of a kind as one, of the first's time."""
    about = tuple(dict.fromkeys([*first.about, *second.about]))[:MAX_ABOUT]
    return replace(first, count=first.count + second.count, about=about)


class SavedMarks(TypedDict):
    """The marks in the ledger's file."""

    model: str
    rows: list[tuple[str, int, int, int, list[str]]]
    """Kind, round, time, count and what each is about."""


class Marks:
    """The marks of one run."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self._round = 0
        self._model = ""
        self._pid: int | None = None
        self.changes = 0
        """Counts up with every mark."""

    def reached(self, round_number: int) -> None:
        """A round is over. One that is played again takes later marks back to where it started.

        Round 1 is of another run: of the marks before it those since the latest start stay.
        """
        if round_number <= 1:
            starts = [at for at, mark in enumerate(self._marks) if mark.kind in _STARTS]
            del self._marks[: starts[-1] if starts else None]
        if round_number <= max(1, self._round):
            latest = max(0, round_number - 1)
            self._marks = [replace(one, round=min(one.round, latest)) for one in self._marks]
        self._round = round_number

    def started(self, now_ms: int) -> None:
        """The node is up."""
        self._note(MarkKind.STARTED, now_ms, ())

    def trainer(self, pid: int, now_ms: int) -> None:
        """A trainer is on the socket: another than before, or the same once more."""
        if self._pid not in (None, pid):
            self._note(MarkKind.TRAINER, now_ms, ())
        self._pid = pid

    def trains(self, model: object, now_ms: int) -> None:
        """The trainer says which model it trains."""
        if not isinstance(model, str) or not model or model[:MAX_NAME_BYTES] == self._model:
            return
        was, self._model = self._model, model[:MAX_NAME_BYTES]
        self.changes += 1
        if was:
            self._note(MarkKind.MODEL, now_ms, [self._model])

    def joined(self, peers: Iterable[str], now_ms: int) -> None:
        """Peers of the swarm are connected that were not."""
        self._note(MarkKind.JOINED, now_ms, sorted(peers))

    def left(self, peers: Iterable[str], now_ms: int) -> None:
        """Peers are connected no longer."""
        self._note(MarkKind.LEFT, now_ms, sorted(peers))

    def _note(self, kind: MarkKind, now_ms: int, about: Sequence[str]) -> None:
        if kind in _OF_PEERS and not about:
            return
        self.changes += 1
        mark = Mark(
            kind=kind.value,
            round=self._round,
            at_ms=now_ms,
            count=max(1, len(about)),
            about=tuple(about[:MAX_ABOUT]),
        )
        last = next((one for one in reversed(self._marks) if one.kind == kind), None)
        if last and last.round == self._round and 0 <= now_ms - last.at_ms < MINUTE_MS:
            self._marks[self._marks.index(last)] = _both(last, mark)
        else:
            self._marks.append(mark)
            self._bound(_OF_PEERS if kind in _OF_PEERS else _OWN)

    def _bound(self, kinds: Sequence[MarkKind]) -> None:
        """Make one of the nearest two of a kind, if there are too many of these kinds together."""
        if sum(mark.kind in kinds for mark in self._marks) <= MAX_MARKS:
            return
        of_kinds = [[mark for mark in self._marks if mark.kind == kind] for kind in kinds]
        pairs = [pair for found in of_kinds for pair in pairwise(found)]
        first, second = min(pairs, key=lambda pair: abs(pair[1].at_ms - pair[0].at_ms))
        both = _both(first, second)
        left = (mark for mark in self._marks if mark is not second)
        self._marks = [both if mark is first else mark for mark in left]

    def rows(self) -> tuple[Mark, ...]:
        """Return the marks, the oldest first."""
        return tuple(self._marks)

    # The file

    def to_json(self) -> SavedMarks:
        """Return the form that the data directory keeps."""
        rows = [(m.kind, m.round, m.at_ms, m.count, list(m.about)) for m in self._marks]
        return {"model": self._model, "rows": rows}

    def restore(self, saved: SavedMarks, round_number: int) -> None:
        """Take over what `to_json` gave, of a run that stood at `round_number`."""
        self._model, self._round = saved["model"][:MAX_NAME_BYTES], round_number
        self._marks = [
            Mark(
                kind=kind,
                round=max(0, at_round),
                at_ms=at_ms,
                count=max(1, count),
                about=tuple(one[:MAX_NAME_BYTES] for one in about[:MAX_ABOUT]),
            )
            for kind, at_round, at_ms, count, about in saved["rows"][: 2 * MAX_MARKS]
            if kind in set(MarkKind)  # a later version's is passed over
        ]

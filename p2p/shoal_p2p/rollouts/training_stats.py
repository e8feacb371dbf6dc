"""Training statistics: the groups and the signal that each publisher contributed. Pure.

    a round's outcomes ─▶ row of each publisher: groups, signal, and minutes of the last hour
                      └─▶ row of each family: own reward at first, and recently

*Signal* is the sum of |advantage| over the completions that were trained on: what moved the
weights, by this node's own verifier. A round that is repeated after a kill replaces its earlier
record; round 1 clears all of it, since another model or a new run starts there.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any, Final, Literal

from pydantic import FiniteFloat, TypeAdapter
from typing_extensions import TypedDict

from shoal_base.bounded import REMEMBERED, BoundedDict
from shoal_ipc import messages as m
from shoal_ipc.answers.learning import FamilyStats, LastHour, Ledger, PublisherStats
from shoal_p2p.events import Event, GroupLeased, RoundTrained
from shoal_p2p.rollouts.network_shares import (
    MAX_TRACKED,
    MINUTE_MS,
    WINDOW_MINUTES,
    NetworkShares,
)
from shoal_wire.limits import MAX_NAME_BYTES
from shoal_wire.types import PeerId

FAMILY_GROUPS: Final = 40
"""Groups in a family's first and latest mean."""


@dataclass(slots=True, kw_only=True)
class Minute:
    """Groups, signal and tokens trained on from one publisher in one minute of the wall clock."""

    minute: int
    groups: int = 0
    signal: float = 0.0
    tokens: int = 0


@dataclass(slots=True, kw_only=True)
class PublisherTotals:
    """Totals trained on from one publisher. Mutable."""

    model: str = ""
    looked_at: int = 0
    trained: int = 0
    signal: float = 0.0
    reward_sum: float = 0.0
    """Sum over all groups that were looked at."""
    last_ms: int = 0
    """Time when a group of it was trained on last; 0 for never."""
    minutes: deque[Minute] = field(default_factory=lambda: deque(maxlen=WINDOW_MINUTES))

    def last_hour(self, now_ms: int) -> Minute:
        """Return the sum over the last hour."""
        first = now_ms // MINUTE_MS - WINDOW_MINUTES + 1
        found = [one for one in self.minutes if one.minute >= first]
        return Minute(
            minute=first,
            groups=sum(one.groups for one in found),
            signal=math.fsum(one.signal for one in found),
            tokens=sum(one.tokens for one in found),
        )


@dataclass(slots=True, kw_only=True)
class FamilyAnswers:
    """Rewards of own completions in one family."""

    groups: int = 0
    first: list[float] = field(default_factory=list)
    """Mean reward of its first groups, at most FAMILY_GROUPS."""
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=FAMILY_GROUPS))

    def add(self, reward: float) -> None:
        """Count one own group."""
        self.groups += 1
        self.latest.append(reward)
        if len(self.first) < FAMILY_GROUPS:
            self.first.append(reward)


_COUNTS: Final = [one.name for one in fields(PublisherTotals)][:-1]
_MINUTE: Final = [one.name for one in fields(Minute)]
_Added = tuple[PeerId, bool, float, float]
"""A group in its publisher's row: whether it was trained on, its signal, its reward."""
_SavedMinute = tuple[int, int, FiniteFloat, int]
_SavedRow = tuple[str, str, int, int, FiniteFloat, FiniteFloat, int, list[_SavedMinute]]
"""A peer's id, then the fields of `PublisherTotals` in their order."""


class _Saved(TypedDict):
    """The ledger in its file."""

    form: Literal[1]
    me: str
    round: int
    began_ms: int
    publishers: list[_SavedRow]
    families: list[tuple[str, int, list[FiniteFloat], list[FiniteFloat]]]


_SAVED: Final = TypeAdapter(_Saved)


class TrainingStats:
    """The training statistics of one node."""

    def __init__(self, me: PeerId) -> None:
        self._me = me
        self._clear()
        self._taken = 0
        self.origins = NetworkShares()

    @classmethod
    def from_json(cls, text: str) -> TrainingStats:
        """Return the ledger in the file of any node.

        Raises:
            ValueError: it is not of this form.
        """
        found = cls(PeerId(_SAVED.validate_json(text)["me"]))
        found.restore(text)
        return found

    @property
    def rounds_taken(self) -> int:
        """Number of recorded rounds, for change detection."""
        return self._taken

    def _clear(self) -> None:
        self.round = 0
        self._rows: BoundedDict[PeerId, PublisherTotals] = BoundedDict(MAX_TRACKED)
        self._families: BoundedDict[str, FamilyAnswers] = BoundedDict(MAX_TRACKED)
        self._journal: deque[tuple[int, list[_Added]]] = deque(maxlen=REMEMBERED)
        """Additions of the latest rounds; older ones cannot be undone."""
        self._began_ms = 0
        """Time when the first round was recorded; 0 before it."""

    def on_event(self, event: Event) -> None:
        """Record leased groups, and the outcomes of a round."""
        match event:
            case GroupLeased():
                self.origins.add_leased(event)
            case RoundTrained():
                self.take(event.round, event.outcomes, now_ms=event.at_ms)

    def take(self, round_number: int, outcomes: Sequence[m.GroupOutcome], *, now_ms: int) -> None:
        """Record the outcomes of a round."""
        if round_number <= 1:
            self._clear()
        elif round_number <= self.round:
            self._undo_from(round_number)
        self.round = round_number
        self._taken += 1
        if not self._rows:
            self._began_ms = now_ms
        self._journal.append((round_number, [self._add(one, now_ms) for one in outcomes]))
        for one in outcomes:
            self.origins.add_outcome(one, now_ms)

    def _add(self, one: m.GroupOutcome, now_ms: int) -> _Added:
        publisher = one.publisher or self._me
        reward = one.reward if math.isfinite(one.reward) else 0.0
        signal = one.signal if math.isfinite(one.signal) and not one.skip_reason else 0.0
        row = self._rows.use(publisher, PublisherTotals)
        row.model = one.model[:MAX_NAME_BYTES] or row.model
        row.looked_at += 1
        row.reward_sum += reward
        if not one.skip_reason:
            row.trained += 1
            row.signal += signal
            row.last_ms = now_ms
            self._count_minute(row, signal, one.tokens, now_ms)
        if publisher == self._me:
            self._families.use(one.family[:MAX_NAME_BYTES], FamilyAnswers).add(reward)
        return publisher, not one.skip_reason, signal, reward

    def _undo_from(self, round_number: int) -> None:
        """Undo this round and later ones: the trainer was rolled back behind them."""
        while self._journal and self._journal[-1][0] >= round_number:
            for publisher, was_trained, signal, reward in self._journal.pop()[1]:
                if (row := self._rows.get(publisher)) is not None:
                    row.looked_at -= 1
                    row.trained -= was_trained
                    row.signal -= signal
                    row.reward_sum -= reward

    @staticmethod
    def _count_minute(row: PublisherTotals, signal: float, tokens: int, now_ms: int) -> None:
        minute = now_ms // MINUTE_MS
        if not row.minutes or row.minutes[-1].minute < minute:
            row.minutes.append(Minute(minute=minute))
        latest = row.minutes[-1]
        latest.groups += 1
        latest.signal += signal
        latest.tokens += tokens

    # Views

    @property
    def last_ms(self) -> int:
        """Time when a group was trained on last; 0 for never."""
        return max((row.last_ms for _, row in self._rows.items()), default=0)

    def view(self, now_ms: int) -> Ledger:
        """Return the content of the debug view `ledger`."""
        return Ledger(
            at_ms=now_ms,
            round=self.round,
            publishers=self.publishers(now_ms),
            families=self.families(),
            last_hour=self.last_hour(now_ms),
        )

    def publishers(self, now_ms: int) -> tuple[PublisherStats, ...]:
        """Return one row per publisher, largest signal first."""
        found = [
            PublisherStats(
                peer_id=peer_id,
                is_local=peer_id == self._me,
                model=row.model,
                groups_seen=row.looked_at,
                groups_trained=row.trained,
                signal=round(max(0.0, row.signal), 4),
                reward=round(row.reward_sum / row.looked_at, 4) if row.looked_at else None,
                last_trained_s=(now_ms - row.last_ms) / 1000 if row.last_ms else None,
            )
            for peer_id, row in self._rows.items()
        ]
        return tuple(sorted(found, key=lambda row: (-row.signal, row.peer_id)))

    def keep_families(self, names: Collection[str]) -> None:
        """Forget the rows of all other families: a family that begins may have the name of one
        that has ended."""
        for name in [one for one in self._families if one not in names]:
            del self._families[name]

    def families(self) -> tuple[FamilyStats, ...]:
        """Return one row per family of own questions, by name."""
        return tuple(
            FamilyStats(
                name=name,
                groups=row.groups,
                reward=_mean(row.latest),
                reward_initial=_mean(row.first),
            )
            for name, row in sorted(self._families.items())
        )

    def last_hour(self, now_ms: int) -> LastHour:
        """Return the external and the local signal of the last hour."""
        own, others = Minute(minute=0), Minute(minute=0)
        oldest = now_ms // MINUTE_MS
        for peer_id, row in self._rows.items():
            found = row.last_hour(now_ms)
            to = own if peer_id == self._me else others
            to.groups += found.groups
            to.signal += found.signal
            to.tokens += found.tokens
            oldest = min(
                [oldest, *(one.minute for one in row.minutes if one.minute >= found.minute)]
            )
        began_ms = max(oldest * MINUTE_MS, self._began_ms)
        signal = own.signal + others.signal
        return LastHour(
            window_s=max(0, min(60 * WINDOW_MINUTES, (now_ms - began_ms) // 1000)),
            external_signal_share=round(others.signal / signal, 4) if signal > 0 else None,
            groups_local=own.groups,
            groups_external=others.groups,
            tokens_external=others.tokens,
        )

    # The file

    def to_json(self) -> str:
        """Return the JSON that the data directory keeps, without the journal."""
        return json.dumps(
            {
                "form": 1,
                "me": self._me,
                "round": self.round,
                "began_ms": self._began_ms,
                "publishers": [
                    [peer_id, *astuple(row)[:-1], [list(astuple(one)) for one in row.minutes]]
                    for peer_id, row in self._rows.items()
                ],
                "families": [
                    [name, row.groups, row.first, list(row.latest)]
                    for name, row in self._families.items()
                ],
            }
        )

    def restore(self, text: str) -> None:
        """Take over what was kept.

        Raises:
            ValueError: it is not of this form; nothing is taken over.
        """
        saved = _SAVED.validate_json(text)
        self._clear()
        self.round = saved["round"]
        self._began_ms = saved["began_ms"]
        for peer_id, *counts, minutes in saved["publishers"]:
            row = self._rows[PeerId(peer_id)] = PublisherTotals(**_named(_COUNTS, counts))
            row.minutes.extend(Minute(**_named(_MINUTE, one)) for one in minutes)
        for name, groups, first, latest in saved["families"]:
            family = self._families[name] = FamilyAnswers(
                groups=groups, first=first[:FAMILY_GROUPS]
            )
            family.latest.extend(latest)


def _named(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


def _mean(values: Sequence[float] | deque[float]) -> float | None:
    return round(math.fsum(values) / len(values), 4) if values else None

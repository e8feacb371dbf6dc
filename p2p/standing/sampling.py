"""How useful a publisher's groups have been to this node's own training: its share of the draws.

The trainer reports what its own verifier gave each group it drew.  A group is *useful* by its best
completion beside what answers to that family usually reach here; a constant or token reward is not.
Where nobody reaches anything a zero says nothing, so a young swarm accuses nobody.

    useful u = min(1, best of the group / usual best of the family)        0 … 1
    q        = (Σu + ½) / (n + 1)              the mean, under a Beta(½, ½) prior
    weight   = min(1, (q / ¼)²), at least 0.01

A weak honest node is useful now and then and keeps full weight from a quarter upwards; only who is
useful almost never fades.  Never a ban: a fresh model that earns nothing looks the same, keeps its
floor, is forgiven with time, and comes back as it learns.  Two pots are capped over all their
members, so that names, which cost nothing, buy nothing: strangers get at most a fifth of the draws
beside proven publishers, the useless one in two hundred.  Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from shoal_base.bounded import BoundedDict
from shoal_wire.types import GroupId, PeerId

HALF_LIFE_SECONDS = 900.0
"""Reports lose half their weight in this time: who learns is forgiven."""
MEMORY_GROUPS = 200.0
"""And a publisher's older groups give way to newer ones, about so many count."""
FLOOR = 0.01
STRANGER_SHARE = 0.2
"""Most of the draws for all publishers of fewer than `STRANGER_GROUPS` reports together."""
STRANGER_GROUPS = 4.0
USELESS_SHARE = 0.005
"""Most of the draws for all publishers below `USELESS_BELOW` together."""
USELESS_BELOW = 0.1

LEAST = 0.05
"""Of the greatest contributor's chance, for who has contributed hardly anything: it may be new."""

_PRIOR = 0.5
_ENOUGH = 0.25
_LEAST_USUAL = 0.1
"""A family whose usual best is lower than this says nothing about anybody."""
_RISE, _FALL = 0.2, 0.02
"""The usual best follows good groups quickly and bad ones slowly: near the upper tenth. Rewards are
our own verifier's, so nobody can raise it but by answering well."""
_MAX_PUBLISHERS = 4096
_MAX_FAMILIES = 1024
_MAX_REPORTED = 8192


@dataclass(slots=True)
class _Record:
    useful: float = 0.0
    groups: float = 0.0
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRow:
    """One publisher's record at one moment, to show or to save."""

    peer_id: PeerId
    useful: float
    """Sum of usefulness over `groups`, both decayed."""
    groups: float
    weight: float
    """0.01 to 1, before pots are capped."""


class SamplingStandings:
    """Records by publisher. Bounded: the least recently reported is forgotten first."""

    def __init__(self) -> None:
        self._records: BoundedDict[PeerId, _Record] = BoundedDict(_MAX_PUBLISHERS)
        self._usual: BoundedDict[str, float] = BoundedDict(_MAX_FAMILIES)
        self._reported: BoundedDict[GroupId, None] = BoundedDict(_MAX_REPORTED)

    def report(
        self,
        group_id: GroupId,
        *,
        publisher: PeerId,
        family: str,
        rewards: Sequence[float],
        own: bool,
        now: float,
    ) -> None:
        """Take in the own verifier's rewards of a group; a group counts once.

        Own groups only teach what a family's answers usually reach.
        """
        finite = [reward for reward in rewards if math.isfinite(reward)]
        if not finite or group_id in self._reported:
            return
        self._reported[group_id] = None
        best = min(1.0, max(0.0, *finite))
        usual = self._learn_usual(family, best, 1.0 if own else self.weight(publisher, now))
        if not own and usual >= _LEAST_USUAL:
            self._add(publisher, min(1.0, best / usual), now)

    def weight(self, publisher: PeerId, now: float) -> float:
        """Return a publisher's weight alone, 0.01 to 1; a stranger's is 1."""
        record = self._current(publisher, now)
        quality = (record.useful + _PRIOR) / (record.groups + 2 * _PRIOR)
        return max(FLOOR, min(1.0, (quality / _ENOUGH) ** 2))

    def weights(self, publishers: Collection[PeerId], now: float) -> dict[PeerId, float]:
        """Return each publisher's factor on its chance of being drawn, 0 to 1."""
        weights = {publisher: self.weight(publisher, now) for publisher in publishers}
        useless = {p for p, weight in weights.items() if weight < USELESS_BELOW}
        strangers = {
            p for p in weights if p not in useless and self.groups(p, now) < STRANGER_GROUPS
        }
        proven = sum(weights[p] for p in weights if p not in useless and p not in strangers)
        _cap(weights, strangers, proven, STRANGER_SHARE)
        others = sum(weights[p] for p in weights if p not in useless)
        _cap(weights, useless, others, USELESS_SHARE)
        return weights

    def groups(self, publisher: PeerId, now: float) -> float:
        """Return how many reports stand behind a weight, decayed."""
        return self._current(publisher, now).groups

    def rows(self, now: float) -> tuple[SamplingRow, ...]:
        """Return every record, the least useful first."""
        rows = [self.row(peer_id, now) for peer_id in self._records]
        return tuple(sorted(rows, key=lambda row: row.weight))

    def row(self, peer_id: PeerId, now: float) -> SamplingRow:
        """Return one publisher's record."""
        record = self._current(peer_id, now)
        return SamplingRow(
            peer_id=peer_id,
            useful=record.useful,
            groups=record.groups,
            weight=self.weight(peer_id, now),
        )

    def restore(self, row: SamplingRow, now: float, *, age_s: float) -> None:
        """Take over a row that was right `age_s` seconds ago."""
        left = 0.5 ** (max(0.0, age_s) / HALF_LIFE_SECONDS)
        groups = min(MEMORY_GROUPS, max(0.0, row.groups)) * left
        self._records[row.peer_id] = _Record(
            useful=min(groups, max(0.0, row.useful) * left), groups=groups, at=now
        )

    def forgive(self, peer_id: PeerId) -> None:
        """Make a publisher a stranger again."""
        self._records.pop(peer_id, None)

    def _learn_usual(self, family: str, best: float, weight: float) -> float:
        usual = self._usual.get(family, best)
        # Downwards only by those who are worth something: the useless must not become usual.
        usual += (best - usual) * (_RISE if best > usual else _FALL * weight)
        self._usual[family] = usual
        return usual

    def _add(self, publisher: PeerId, useful: float, now: float) -> None:
        record = self._current(publisher, now)
        keep = 1.0 - 1.0 / MEMORY_GROUPS
        record.useful = record.useful * keep + useful
        record.groups = record.groups * keep + 1.0
        self._records[publisher] = record

    def _current(self, publisher: PeerId, now: float) -> _Record:
        record = self._records.get(publisher)
        if record is None:
            return _Record(at=now)
        left = 0.5 ** (max(0.0, now - record.at) / HALF_LIFE_SECONDS)
        return _Record(
            useful=record.useful * left, groups=record.groups * left, at=max(now, record.at)
        )


def draw_weights(
    draws: str, standing: Mapping[PeerId, float], contributed: Mapping[PeerId, int]
) -> dict[PeerId, float] | None:
    """Return factors from 0 to 1 by publisher; None where all are alike.

    `standing` says how useful each one's groups have been here (`SamplingStandings`), 0 for
    whom the user has blocked; `contributed` how many groups it has brought.

    ``uniform``: blocked or not is all that counts. ``standing``: as it is. ``contribution``: that,
    times standing × contributed against the greatest such product, so that who shares twice as
    much that is useful is drawn from twice as often.
    """
    if draws == "uniform":
        blocked = {p: 0.0 for p, weight in standing.items() if weight <= 0.0}
        return blocked or None
    if draws != "contribution":
        return dict(standing)
    useful = {p: contributed.get(p, 0) * weight for p, weight in standing.items()}
    most = max(useful.values(), default=0.0)
    if most <= 0.0:
        return dict(standing)
    return {p: weight * max(LEAST, useful[p] / most) for p, weight in standing.items()}


def _cap(
    weights: dict[PeerId, float], pot: Collection[PeerId], others: float, share: float
) -> None:
    """Scale the members of `pot` so that together they get at most `share` beside `others`."""
    total = sum(weights[peer_id] for peer_id in pot)
    allowed = others * share / (1.0 - share)
    if 0.0 < allowed < total:
        for peer_id in pot:
            weights[peer_id] *= allowed / total

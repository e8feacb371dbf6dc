"""How useful a publisher's groups have been to this node's own training: its share of the draws.

The trainer reports what its own verifier gave each group it drew.  A group is *useful* by its best
completion beside what answers to that family usually reach here; a constant or token reward is not.
Where nobody reaches anything a zero says nothing, so a young swarm accuses nobody.

    useful u  0 … 1: how far the group's best is above a tenth of the family's usual best
    weight    min(1, (q / ¼)²), at least 0.01; q = (Σu + ½) / (n + 1), a mean under a Beta prior
    evidence  Σu · ln(⅓ ÷ ¹⁄₅₀) + (n - Σu) · ln(⅔ ÷ ⁴⁹⁄₅₀), a sequential test (Wald 1945): the log
              of how much likelier it is of a publisher useful one time in three than in fifty

    evidence   … ── fifty to one against ── … ── two to one for ── …
    standing       useless                stranger           proven

So one useful group proves a name, eleven useless ones in a row condemn it, and six decide nothing:
of honest nodes useful one time in three they befall one in twelve, eleven one in ninety.  Until it
is decided a publisher is doubted in proportion: drawn by how much likelier it is of some use than
of none, which finds out whom to condemn at the least cost in draws (Lai and Robbins 1985).

Never a ban: a fresh model that earns nothing looks the same, keeps its floor, is forgiven with
time, and comes back as it learns.  Two pots are capped over all their members, so that names, which
cost nothing, buy nothing: beside proven publishers strangers get at most a fifth of the draws, the
useless one in five hundred.  Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shoal_base.bounded import BoundedDict
from shoal_wire.types import GroupId, PeerId

HALF_LIFE_SECONDS = 900.0
"""Reports lose half their weight in this time: who learns is forgiven."""
MEMORY_GROUPS = 200.0
"""And a publisher's older groups give way to newer ones, about so many count."""
FLOOR = 0.01
STRANGER_SHARE = 0.2
"""Most of the draws for all publishers together of whom too little is known."""
UNKNOWN = 0.5
"""What a stranger counts beside a proven publisher: it is as likely as not of use."""
FEW_PROVEN = 3.0
"""Publishers that the proven count for at least, beside strangers: the first one that proves useful
is not to be nearly all that is trained on."""
USELESS_SHARE = 0.002
"""Most of the draws for all useless publishers together."""

LEAST = 0.05
"""Of the greatest contributor's chance, for who has contributed hardly anything: it may be new."""

_PRIOR = 0.5
_ENOUGH = 0.25
_WEAK, _HARDLY = 1.0 / 3.0, 0.02
_IF_USEFUL = math.log(_WEAK / _HARDLY)
_IF_NOT = math.log((1.0 - _WEAK) / (1.0 - _HARDLY))
_PROVEN = math.log(2.0)
_USELESS = -math.log(50.0)
_TOKEN = 0.1
"""Of the usual best: what is given for nothing, as for an answer in the right form."""
_LEAST_USUAL = 0.1
"""A family whose usual best is lower than this says nothing about anybody."""
_RISE, _FALL = 0.2, 0.02
"""The usual best follows good groups quickly and bad ones slowly: near the upper tenth. Rewards are
our own verifier's, so nobody can raise it but by answering well."""
_MAX_PUBLISHERS = 4096
_MAX_FAMILIES = 1024
_MAX_REPORTED = 8192


class Standing(StrEnum):
    """What this node's own reports say of a publisher."""

    PROVEN = "proven"
    STRANGER = "stranger"
    """Too little is known, for it or against it."""
    USELESS = "useless"


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
            useful = (best / usual - _TOKEN) / (1.0 - _TOKEN)
            self._add(publisher, min(1.0, max(0.0, useful)), now)

    def weight(self, publisher: PeerId, now: float) -> float:
        """Return a publisher's weight alone, 0.01 to 1; a stranger's is 1."""
        record = self._current(publisher, now)
        quality = (record.useful + _PRIOR) / (record.groups + 2 * _PRIOR)
        return max(FLOOR, min(1.0, (quality / _ENOUGH) ** 2))

    def standing(self, publisher: PeerId, now: float) -> Standing:
        """Return what the reports of a publisher's groups say."""
        evidence = self._evidence(publisher, now)
        if evidence <= _USELESS:
            return Standing.USELESS
        return Standing.PROVEN if evidence >= _PROVEN else Standing.STRANGER

    def weight_alone(self, publisher: PeerId, now: float) -> float:
        """Return a publisher's factor among those of its standing, 0.01 to 1."""
        if self.standing(publisher, now) is Standing.STRANGER:
            return min(1.0, math.exp(self._evidence(publisher, now)))
        return self.weight(publisher, now)

    def weights(self, publishers: Collection[PeerId], now: float) -> dict[PeerId, float]:
        """Return each publisher's factor on its chance of being drawn, 0 to 1.

        As if each had come by a network of its own: where that is known (`p2p.buffer.drawing`),
        strangers of one network count as one.
        """
        weights = {publisher: self.weight_alone(publisher, now) for publisher in publishers}
        of: dict[Standing, list[PeerId]] = {standing: [] for standing in Standing}
        for publisher in weights:
            of[self.standing(publisher, now)].append(publisher)
        totals = {standing: sum(weights[p] for p in of[standing]) for standing in Standing}
        pots = capped(*(totals[standing] for standing in Standing))
        for standing, pot in zip((Standing.STRANGER, Standing.USELESS), pots, strict=True):
            for publisher in of[standing]:
                weights[publisher] *= pot / totals[standing]
        return weights

    def known(self, now: float) -> dict[PeerId, Standing]:
        """Return everybody who is more than a stranger; O(records)."""
        found = {publisher: self.standing(publisher, now) for publisher in self._records}
        return {p: standing for p, standing in found.items() if standing is not Standing.STRANGER}

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

    def _evidence(self, publisher: PeerId, now: float) -> float:
        record = self._current(publisher, now)
        return record.useful * _IF_USEFUL + (record.groups - record.useful) * _IF_NOT

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


def capped(proven: float, strangers: float, useless: float) -> tuple[float, float]:
    """Return what strangers and the useless weigh within their shares, beside these weights.

    A share is one beside who is worth more: where nobody is, it is not bounded.
    """
    if proven > 0.0:
        beside = max(proven, FEW_PROVEN)
        most = beside * STRANGER_SHARE / (1.0 - STRANGER_SHARE)
        strangers = min(strangers * UNKNOWN, most)
    others = proven + strangers
    if others > 0.0:
        useless = min(useless, others * USELESS_SHARE / (1.0 - USELESS_SHARE))
    return strangers, useless

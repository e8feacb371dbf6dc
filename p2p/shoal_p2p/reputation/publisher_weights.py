"""A publisher's weight in draws: how much its groups have taught this node.

The trainer reports what its own verifier gave each group it drew.  What a group can teach is the
*spread* of its rewards, best less worst: where all are alike there is nothing to learn.  Usual is
what this node's own groups of that family spread, so nobody else can raise it or lower it.

    useful u     Σ spread of a publisher's groups
    expected e   Σ what own groups of the same families usually spread
    weight       min(1, (4 · (½ + u) / (½ + e))²), at least 0.01

So who teaches a quarter of what own groups do is drawn as often as anybody; less counts only once
one or two groups' worth has been missed; where own groups teach next to nothing nobody is accused.
A greater weight than everybody's is not to be had: right answers cost nothing, so being right buys
no larger part.  What one network or name may give at most is the trainer's (`shoal_policy.choice`).

A publisher of which too little is known counts for what peers of its network have signed: a liar's
next name begins where its last one ended.  What is passed on is judged by name alone: else liars,
heard through an honest peer, would have all that it passes on taken for useless.  There is no ban:
a fresh model that earns nothing looks the same, keeps its floor, and is forgiven with time.  Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shoal_base.bounded import MANY, BoundedDict
from shoal_wire.types import GroupId, PeerId

HALF_LIFE_SECONDS = 900.0
"""Reports lose half their weight in this time: who learns is forgiven."""
MEMORY_GROUPS = 100.0
"""And older groups give way to newer ones, about so many count. With fewer a liar's weight ends
higher: at 32, where own groups spread .3, at .04, and at 100 at the floor."""
FLOOR = 0.01
ENOUGH = 3.0
"""Expected of a publisher before it counts for itself: of honest ones, one in twenty has taught
nothing by then."""

_PRIOR = 0.5
"""Counted for everybody, so that a weight falls once 1.5 groups' worth has been missed. In the
simulation's ten minutes one liar of twelve nodes then has a quarter fewer draws than with 1."""
_MARGIN = 4.0
"""So many times less than own groups teach is still as good as any. A steeper fall (a sixth, to the
fourth) halves what liars are drawn, and leaves an honest beginner, who is right once in fifty among
strong ones, next to nothing (tests/p2p/reputation/test_liars.py)."""
_TOKEN = 0.1
"""The part of the usual spread that verifiers give for nothing, as for the right form."""
_TAUGHT = 0.05
"""Spread after which a publisher has taught: half a group of weak ones. A right one counts for an
hour."""
_KEPT = 1.5
"""Most that is credited, beside what a full weight needs: else a hundred good groups would pay for
hundreds of useless ones. Now it pays for sixty to ninety, and one good group for 25 where own ones
spread .3 (none: for nine)."""
_OWN_MEMORY = 2 * MEMORY_GROUPS
_FEW = 4.0
"""Own groups of a family that count as much as those of all families do."""


@dataclass(slots=True)
class Record:
    """The reports of one publisher, or of one source, decayed to a moment."""

    useful: float = 0.0
    """Sum of spreads over `groups`."""
    expected: float = 0.0
    """Sum of what own groups of their families usually spread."""
    groups: float = 0.0
    at: float = 0.0

    @property
    def weight(self) -> float:
        """The factor on the chance of being drawn, 0.01 to 1."""
        ratio = _MARGIN * (_PRIOR + self.useful) / (_PRIOR + self.expected)
        return max(FLOOR, min(1.0, ratio**2))

    def now(self, now: float) -> Record:
        """Return what is left of it."""
        left = 0.5 ** (max(0.0, now - self.at) / HALF_LIFE_SECONDS)
        return Record(
            useful=self.useful * left,
            expected=self.expected * left,
            groups=self.groups * left,
            at=max(now, self.at),
        )

    def add(self, spread: float, usual: float) -> None:
        """Count a group of that spread, of a family whose own groups usually spread so much."""
        keep = 1.0 - 1.0 / MEMORY_GROUPS
        self.groups = self.groups * keep + 1.0
        self.expected = self.expected * keep + usual
        enough = _KEPT * (_PRIOR + self.expected) / _MARGIN
        self.useful = min(self.useful * keep + spread, max(1.0, enough))


@dataclass(slots=True)
class _Usual:
    """The spread of own groups, decayed."""

    spread: float = 0.0
    groups: float = 0.0

    def add(self, spread: float) -> None:
        keep = 1.0 - 1.0 / _OWN_MEMORY
        self.spread = self.spread * keep + spread
        self.groups = self.groups * keep + 1.0


class PublisherWeights:
    """Records by publisher and by source. Bounded: the least recently reported is forgotten."""

    def __init__(self) -> None:
        self._records: BoundedDict[PeerId, Record] = BoundedDict(MANY)
        self._sources: BoundedDict[str, Record] = BoundedDict()
        self._usual: BoundedDict[str, _Usual] = BoundedDict()
        self._usual_of_all = _Usual()
        self._reported: BoundedDict[GroupId, None] = BoundedDict(MANY)

    def report(
        self,
        group_id: GroupId,
        *,
        publisher: PeerId,
        family: str,
        rewards: Sequence[float],
        own: bool,
        now: float,
        source: str = "",
    ) -> None:
        """Take in the own verifier's rewards of a group; a group counts once.

        Own groups only teach what a family's groups usually spread. `source` is the network of a
        publisher that brought it itself (`shoal_p2p.buffer.pool.source_of`); else it is empty.
        """
        finite = [min(1.0, max(0.0, reward)) for reward in rewards if math.isfinite(reward)]
        if not finite or group_id in self._reported:
            return
        self._reported[group_id] = None
        spread = max(finite) - min(finite)
        if own:
            self._usual.use(family, _Usual).add(spread)
            self._usual_of_all.add(spread)
            return
        usual = self._usual_spread(family)
        if spread < _TOKEN * usual:
            spread = 0.0
        record = self.row(publisher, now)
        record.add(spread, usual)
        self._records[publisher] = record
        if source:
            common = self._sources.get(source, Record()).now(now)
            common.add(spread, usual)
            self._sources[source] = common

    def weight(self, publisher: PeerId, now: float, source: str = "") -> float:
        """Return the factor on a publisher's chance of being drawn, 0.01 to 1.

        Of whom too little is known it is what `source` has earned.
        """
        record = self.row(publisher, now)
        if record.expected < ENOUGH and source in self._sources:
            record = self._sources[source].now(now)
        return record.weight

    def has_taught(self, publisher: PeerId, now: float) -> bool:
        """Return whether groups of this publisher have lately taught anything."""
        return self.row(publisher, now).useful >= _TAUGHT

    def rows(self, now: float) -> dict[PeerId, Record]:
        """Return every publisher's record, the least useful first."""
        found = [(peer_id, record.now(now)) for peer_id, record in self._records.items()]
        return dict(sorted(found, key=lambda item: item[1].weight))

    def row(self, peer_id: PeerId, now: float) -> Record:
        """Return one publisher's record."""
        return self._records.get(peer_id, Record()).now(now)

    def restore(self, peer_id: PeerId, saved: Record, now: float, *, age_s: float) -> None:
        """Take over a record that was right `age_s` seconds ago."""
        groups = min(MEMORY_GROUPS, max(0.0, saved.groups))
        before = Record(
            useful=min(groups, max(0.0, saved.useful)),
            expected=min(groups, max(0.0, saved.expected)),
            groups=groups,
            at=now - max(0.0, age_s),
        )
        self._records[peer_id] = before.now(now)

    def forgive(self, peer_id: PeerId) -> None:
        """Forget what is known of a publisher."""
        self._records.pop(peer_id, None)

    def _usual_spread(self, family: str) -> float:
        """Return what an own group of a family teaches; 0 before there was any."""
        of_all, found = self._usual_of_all, self._usual.get(family, _Usual())
        mean = of_all.spread / (of_all.groups + _FEW)
        return (found.spread + _FEW * mean) / (found.groups + _FEW)

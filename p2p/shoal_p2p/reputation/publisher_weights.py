"""Sampling weights of publishers, by the learning signal of their groups on this node. Pure.

The trainer reports the rewards that its own verifier gave to each sampled group. The signal of a
group is the *spread* of its rewards, best minus worst: equal rewards give no advantage to train on.
The expected spread is the mean of this node's own groups in the same family, so other peers cannot
change it.

    useful u     Σ spread of a publisher's groups
    expected e   Σ mean spread of own groups in the same families
    weight       min(1, (4 · (½ + u) / (½ + e))²), at least 0.01

A publisher with a quarter of the spread of own groups still has full weight. Less only counts once
one or two groups' worth is missing, and if own groups have almost no spread no publisher loses
weight. The weight is capped at 1, because correct answers are cheap to copy and must not buy a
larger share. The trainer limits the share of one network or publisher (`shoal_policy.choice`).

A publisher with too few samples gets the weight of its network's own publications, so that a new
identity of a liar starts where the last one ended. Forwarded groups count for the publisher alone:
otherwise a liar behind an honest peer would lower the weight of everything that peer forwards.
There is no ban: a fresh model that earns nothing looks the same, keeps the minimum, and recovers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shoal_base.bounded import MANY, BoundedDict
from shoal_p2p.fair.buckets import remaining
from shoal_wire.types import GroupId, PeerId

HALF_LIFE_SECONDS = 900.0
"""Time in which reports lose half of their weight, so that a node that improves recovers."""
MEMORY_GROUPS = 100.0
"""Effective number of groups that count; older ones decay. With fewer, a liar's weight ends higher:
if own groups spread .3, at .04 with 32, and at the minimum with 100."""
FLOOR = 0.01
ENOUGH = 3.0
"""Expected spread after which a publisher's own record counts: by then one honest publisher in
twenty has shown no spread at all."""

_PRIOR = 0.5
"""Prior added to both sums, so that a weight falls once 1.5 groups' worth is missing. In ten
simulated minutes one liar among twelve nodes is sampled a quarter less than with 1."""
_MARGIN = 4.0
"""Factor below the own groups' spread at which the weight is still 1. A steeper fall (a sixth, to
the fourth power) halves how often liars are sampled, but leaves an honest beginner, right once in
fifty among strong peers, almost nothing (tests/p2p/reputation/test_liars.py)."""
_TOKEN = 0.1
"""Fraction of the usual spread that verifiers give for trivial merits, such as the right format."""
_USEFUL = 0.05
"""Spread after which a publisher counts as useful: half a group with weak signal. A group with full
signal counts for an hour."""
_MAX_CREDIT = 1.5
"""Cap on useful spread, relative to what full weight needs. Otherwise a hundred good groups would
offset hundreds of useless ones. With it they offset sixty to ninety, and one good group offsets 25
if own groups spread .3 (with none: nine)."""
_OWN_MEMORY = 2 * MEMORY_GROUPS
_FEW = 4.0
"""Own groups of a family at which its mean and the mean of all families count equally."""


@dataclass(slots=True)
class Record:
    """The decayed reports about one publisher or one source."""

    useful: float = 0.0
    """Sum of spreads over `groups`."""
    expected: float = 0.0
    """Sum of the mean spread of own groups in their families."""
    groups: float = 0.0
    at: float = 0.0

    @property
    def weight(self) -> float:
        """The factor on the sampling probability, 0.01 to 1."""
        ratio = _MARGIN * (_PRIOR + self.useful) / (_PRIOR + self.expected)
        return max(FLOOR, min(1.0, ratio**2))

    def now(self, now: float) -> Record:
        """Return the record decayed to `now`."""
        left = remaining(now - self.at, HALF_LIFE_SECONDS)
        return Record(
            useful=self.useful * left,
            expected=self.expected * left,
            groups=self.groups * left,
            at=max(now, self.at),
        )

    def add(self, spread: float, usual: float) -> None:
        """Count a group with `spread`, in a family whose own groups have a mean spread `usual`."""
        keep = 1.0 - 1.0 / MEMORY_GROUPS
        self.groups = self.groups * keep + 1.0
        self.expected = self.expected * keep + usual
        enough = _MAX_CREDIT * (_PRIOR + self.expected) / _MARGIN
        self.useful = min(self.useful * keep + spread, max(1.0, enough))


@dataclass(slots=True)
class _Usual:
    """Decayed spread of own groups."""

    spread: float = 0.0
    groups: float = 0.0

    def add(self, spread: float) -> None:
        keep = 1.0 - 1.0 / _OWN_MEMORY
        self.spread = self.spread * keep + spread
        self.groups = self.groups * keep + 1.0


class PublisherWeights:
    """Records by publisher and by source. Bounded: the least recently reported is dropped."""

    def __init__(self) -> None:
        self._records: BoundedDict[PeerId, Record] = BoundedDict(MANY)
        self._sources: BoundedDict[str, Record] = BoundedDict()
        self._usual: BoundedDict[str, _Usual] = BoundedDict()
        self._usual_overall = _Usual()
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
        """Record this node's rewards for a group; each group counts once.

        Own groups only update the expected spread of their family. `source` is the publisher's
        network if the publisher delivered the group itself (`shoal_p2p.buffer.pool.source_of`);
        otherwise it is empty.
        """
        finite = [min(1.0, max(0.0, reward)) for reward in rewards if math.isfinite(reward)]
        if not finite or group_id in self._reported:
            return
        self._reported[group_id] = None
        spread = max(finite) - min(finite)
        if own:
            self._usual.use(family, _Usual).add(spread)
            self._usual_overall.add(spread)
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
        """Return the factor on a publisher's sampling probability, 0.01 to 1.

        Falls back to the weight of `source` when there are too few samples.
        """
        record = self.row(publisher, now)
        if record.expected < ENOUGH and source in self._sources:
            record = self._sources[source].now(now)
        return record.weight

    def has_signal(self, publisher: PeerId, now: float) -> bool:
        """Return whether groups of this publisher had signal recently."""
        return self.row(publisher, now).useful >= _USEFUL

    def rows(self, now: float) -> dict[PeerId, Record]:
        """Return all records by publisher, least useful first."""
        found = [(peer_id, record.now(now)) for peer_id, record in self._records.items()]
        return dict(sorted(found, key=lambda item: item[1].weight))

    def row(self, peer_id: PeerId, now: float) -> Record:
        """Return one publisher's record."""
        return self._records.get(peer_id, Record()).now(now)

    def restore(self, peer_id: PeerId, saved: Record, now: float, *, age_s: float) -> None:
        """Restore a record that was valid `age_s` seconds ago."""
        groups = min(MEMORY_GROUPS, max(0.0, saved.groups))
        before = Record(
            useful=min(groups, max(0.0, saved.useful)),
            expected=min(groups, max(0.0, saved.expected)),
            groups=groups,
            at=now - max(0.0, age_s),
        )
        self._records[peer_id] = before.now(now)

    def forgive(self, peer_id: PeerId) -> None:
        """Forget a publisher's record."""
        self._records.pop(peer_id, None)

    def _usual_spread(self, family: str) -> float:
        """Return the mean spread of own groups in a family; 0 before the first."""
        of_all, found = self._usual_overall, self._usual.get(family, _Usual())
        mean = of_all.spread / (of_all.groups + _FEW)
        return (found.spread + _FEW * mean) / (found.groups + _FEW)

"""Chooses which shards a node subscribes to, and when it changes them. Pure.

    wanted groups/s ─┐
    rate by shard ───┴─▶ number of shards ─▶ join, leave ─▶ exchange one every few minutes

A node subscribes to as few shards as give it `headroom` times the groups that its trainer samples,
so its traffic depends on its own demand and not on the size of the swarm. Now and then one shard is
exchanged for another (joined before the old one is left), so that in time it hears every publisher.
Joining is fast and leaving slow, and a shard is left only if the others would still give clearly
more than the threshold for joining: the number does not flap.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from shoal_base.ranges import Range, Ranged, Seconds, SecondsOrZero
from shoal_p2p.fair.buckets import HALF_LIFE_OF_TIME_CONSTANT, remaining
from shoal_wire.limits import MAX_SHARDS_PER_PEER


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLimits(Ranged):
    """Thresholds and times for joining, leaving and exchanging shards."""

    max_shards: Annotated[int, Range("shards", 1, MAX_SHARDS_PER_PEER)] = 16
    """Maximum shards with automatic choice."""
    headroom: Annotated[float, Range("times", 1, 1000)] = 2.0
    """Groups received for each one sampled, for choice and to bridge pauses."""
    slack: Annotated[float, Range("times", 1, 1000)] = 1.5
    """A shard is left if the others give this many times the target rate."""
    settle_s: SecondsOrZero = 20.0
    """Seconds after a change before the measured rates are used."""
    surplus_s: SecondsOrZero = 60.0
    """Seconds of surplus before a shard is left."""
    rotation_s: Seconds = 300.0
    """Mean time after which one shard is exchanged for another."""
    overlap_s: SecondsOrZero = 15.0
    """Seconds for which old and new shard overlap: a mesh forms in a few heartbeats."""
    memory_s: Seconds = 60.0
    """Time constant of the measured rates."""


@dataclass(slots=True)
class _Rate:
    """Events per second, exponentially weighted."""

    events: float = 0.0
    seconds: float = 0.0
    last_count: float | None = None

    def add(self, count: float, elapsed: float, memory_s: float) -> None:
        if self.last_count is not None and count >= self.last_count:
            fade = remaining(elapsed, HALF_LIFE_OF_TIME_CONSTANT * memory_s)
            self.events = self.events * fade + (count - self.last_count)
            self.seconds = self.seconds * fade + elapsed
        self.last_count = count

    def part(self, parts: int) -> _Rate:
        """Return the rate of one of `parts` equal parts."""
        return _Rate(self.events / parts, self.seconds)

    @property
    def per_s(self) -> float:
        return self.events / self.seconds if self.seconds > 0 else 0.0


class DemandMeter:
    """Measures how many external groups a trainer wants per second, from its counters.

    A trainer samples J groups a round, and more to replace groups without signal. The meter counts
    what it *wants*, not what it received, so that a shortage is visible.
    """

    def __init__(self, *, external: int, oversample: int, memory_s: float = 60.0) -> None:
        self._external = external
        self._oversample = oversample
        self._memory_s = memory_s
        self._rounds = _Rate()
        self._waste = 1.0
        self._updated: float | None = None

    def update(self, now: float, *, rounds: int, drawn: int, used: int) -> None:
        """Update with the trainer's totals: rounds, external groups sampled, and used."""
        elapsed = 0.0 if self._updated is None else now - self._updated
        self._updated = now
        self._rounds.add(rounds, elapsed, self._memory_s)
        if used > 0:
            self._waste = min(max(1.0, drawn / used), float(self._oversample))

    @property
    def wanted_per_s(self) -> float:
        """Groups a second."""
        return self._external * self._waste * self._rounds.per_s


def demand_of(meter: DemandMeter, status: Mapping[str, object], now: float) -> float:
    """Update the meter from a trainer's status, any JSON object; return the wanted groups/s.

    Missing or malformed values count as 0.
    """
    rounds, drawn, used = (
        value if isinstance(value := status.get(key), int) else 0
        for key in ("round", "external_sampled", "groups_external_used")
    )
    meter.update(now, rounds=rounds, drawn=drawn, used=used)
    return meter.wanted_per_s


class ShardPlan:
    """The shards that this node subscribes to. Call `tick` about every second."""

    def __init__(
        self,
        *,
        num_shards: int,
        rng: random.Random,
        fixed: int | None = None,
        limits: ShardLimits | None = None,
    ) -> None:
        """`fixed` is a constant number of shards, at most all and possibly 0; None chooses by
        demand."""
        self._limits = limits or ShardLimits()
        self._num_shards = num_shards
        self._fixed = fixed
        self._rng = rng
        self._order = list(range(num_shards))
        rng.shuffle(self._order)
        self._joined: dict[int, float] = {}
        """Shard → time of joining, oldest first."""
        self._leaving: dict[int, float] = {}
        """Exchanged shard → time to leave it."""
        self._rates: dict[int, _Rate] = {}
        self._aim = 0.0
        """Target groups per second, by the latest demand."""
        self._ticked: float | None = None
        self._changed_at = -math.inf
        self._surplus_since: float | None = None
        self._rotate_at = math.inf

    @property
    def shards(self) -> tuple[int, ...]:
        """The current shards, including those about to be left."""
        return tuple(sorted({*self._joined, *self._leaving}))

    @property
    def load(self) -> float | None:
        """Mean groups per second in each current shard; None while unknown."""
        known = self._known()
        return sum(known) / len(known) if known else None

    def _known(self) -> list[float]:
        """Return the groups per second of each shard that was measured for long enough."""
        return [
            rate.per_s
            for shard, rate in self._rates.items()
            if shard in self._joined and rate.seconds >= self._limits.settle_s / 2
        ]

    def divide(self, levels: int, now: float) -> None:
        """Replace each shard by its 2^levels descendants, as many as the demand needs.

        Each part is assumed to carry an equal share of the rate, so that neither the number of
        shards nor the next split waits for a new measurement.
        """
        parts, load = 1 << levels, self.load
        held = [shard * parts + part for shard in self._joined for part in range(parts)]
        if self._fixed is not None:
            needed = self._fixed
        else:
            needed = len(self._joined) if load is None else self._needed_shards(load / parts)
            needed = min(needed, self._limits.max_shards)
        joined = self._rng.sample(held, min(needed, len(held)))
        rates = {shard: self._rates.get(shard // parts, _Rate()).part(parts) for shard in joined}
        self._renumber(parts * self._num_shards, joined, now)
        self._rates = rates

    def unite(self, now: float) -> None:
        """Merge pairs of shards: subscribe to every parent of a current shard."""
        joined = list(dict.fromkeys(shard // 2 for shard in self._joined))
        self._renumber(self._num_shards // 2, joined, now)

    def _renumber(self, num_shards: int, joined: list[int], now: float) -> None:
        self._num_shards = num_shards
        self._order = list(range(num_shards))
        self._rng.shuffle(self._order)
        self._order = [shard for shard in self._order if shard not in joined] + joined
        self._joined, self._leaving, self._rates = dict.fromkeys(joined, now), {}, {}
        self._changed_at, self._surplus_since = now, None

    def tick(self, now: float, *, wanted_per_s: float, received: Mapping[int, int]) -> None:
        """Update the choice; `received` is the total groups received in each shard."""
        self._aim = self._limits.headroom * wanted_per_s
        self._measure(now, received)
        for shard in [s for s, due in self._leaving.items() if due <= now]:
            del self._leaving[shard]
        target = self._target(now)
        while len(self._joined) < target:
            self._join_one(now)
        while len(self._joined) > target:
            self._joined.pop(next(iter(self._joined)))
            self._changed_at = now
        self._rotate(now)
        self._rates = {shard: self._rates[shard] for shard in self.shards if shard in self._rates}

    def _measure(self, now: float, received: Mapping[int, int]) -> None:
        elapsed = 0.0 if self._ticked is None else now - self._ticked
        self._ticked = now
        for shard in self.shards:
            rate = self._rates.setdefault(shard, _Rate())
            rate.add(received.get(shard, 0), elapsed, self._limits.memory_s)

    def _target(self, now: float) -> int:
        """Return how many shards to subscribe to, not counting those being exchanged."""
        if self._fixed is not None:
            return min(self._fixed, self._num_shards)
        limits, count, aim = self._limits, len(self._joined), self._aim
        if count == 0:
            return 1
        if now - self._changed_at < limits.settle_s:
            return count
        supply = self._supply()
        if supply < aim:
            self._surplus_since = None
            enough = math.ceil(aim * count / supply) if supply > 0 else 2 * count
            # At most double at once: the rates of few shards may mislead.
            return min(enough, 2 * count, limits.max_shards, self._num_shards)
        if count > 1 and supply * (count - 1) / count >= limits.slack * aim:
            if self._surplus_since is None:
                self._surplus_since = now
            if now - self._surplus_since >= limits.surplus_s:
                self._surplus_since = None
                # At most half at once: a swarm that has just split still hears all of it.
                return max(self._needed_shards(supply / count), (count + 1) // 2)
        else:
            self._surplus_since = None
        return count

    def _needed_shards(self, per_s: float) -> int:
        """Return how many shards of `per_s` groups per second are enough; 1 if `per_s` is 0."""
        return max(1, math.ceil(self._limits.slack * self._aim / per_s)) if per_s else 1

    def _supply(self) -> float:
        """Return the groups per second of the joined shards; new ones count with the mean."""
        known = self._known() or [rate.per_s for rate in self._rates.values()] or [0.0]
        return sum(known) * len(self._joined) / len(known)

    def _join_one(self, now: float) -> None:
        shard = self._next()
        self._leaving.pop(shard, None)
        self._joined[shard] = now
        self._changed_at = now
        if math.isinf(self._rotate_at):
            self._rotate_at = now + self._pause()

    def _next(self) -> int:
        """Return the shard not subscribed for the longest time, or one that is being left."""
        taken = {*self._joined, *self._leaving}
        shard = next((s for s in self._order if s not in taken), None)
        if shard is None:
            shard = next(s for s in self._order if s not in self._joined)
        self._order.remove(shard)
        self._order.append(shard)
        return shard

    def _rotate(self, now: float) -> None:
        if now < self._rotate_at:
            return
        self._rotate_at = now + self._pause()
        if not self._joined or len(self.shards) == self._num_shards:
            return
        oldest = next(iter(self._joined))
        changed_at = self._changed_at
        self._join_one(now)
        # An exchange keeps the number of shards, so no settling time is needed.
        self._changed_at = changed_at
        del self._joined[oldest]
        self._leaving[oldest] = now + self._limits.overlap_s

    def _pause(self) -> float:
        # Jittered, so that the nodes of a swarm do not move in step.
        return self._limits.rotation_s * self._rng.uniform(0.75, 1.25)

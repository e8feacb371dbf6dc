"""Which task families a node draws its own questions from, moved to where it learns. Pure.

A group whose rewards are all equal trains nothing: its question was too hard, or is known. So a
family is drawn the more, the larger the share of its own groups of late that had signal, and the
more its held-out questions went up at the last evaluation:

    own groups with signal, of late ─┐
    held-out pass@1, what it gained ─┴─▶ factor in [LEAST, MOST] ─▶ × the swarm's weight ─▶ draws

Levels of a task are families of their own, so a node climbs by itself: what is easy loses its
signal, what was too hard gains some. The factors are bounded, so every family keeps at least
LEAST / MOST of the share that the swarm gives it, and is seen when it changes; none gets more than
MOST / LEAST of its share. Families that nobody asked yet begin high: they are looked at first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

LEAST: Final = 0.08
MOST: Final = 0.64
START: Final = 0.5
"""What a family without groups is taken for."""
_TOWARDS: Final = 0.15
"""What one group weighs: some six of them are remembered."""
_MOVED: Final = 0.5
"""What one evaluation weighs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lately:
    """What a node has seen of one family."""

    signal: float = START
    """Share of its own groups whose rewards differ, the latest weighing most; 0 to 1."""
    groups: int = 0
    """Own groups of it so far."""
    held_out: float | None = None
    """pass@1 at the last evaluation."""
    moved: float = 0.0
    """What that gained on the one before; -1 to 1, the latest weighing most."""

    @property
    def factor(self) -> float:
        """By which the swarm's weight of the family counts."""
        return min(MOST, max(LEAST, self.signal + max(0.0, self.moved)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curriculum:
    """All families of a swarm. A value: each round makes the next."""

    families: Mapping[str, Lately] = field(default_factory=dict)

    @classmethod
    def start(cls, families: Iterable[str]) -> Curriculum:
        """Begin with nothing seen."""
        return cls(families=dict.fromkeys(families, Lately()))

    def after(self, groups: Iterable[tuple[str, bool]]) -> Curriculum:
        """Return what follows own groups: of each its family, and whether it had signal."""
        found = dict(self.families)
        for family, signal in groups:
            if (one := found.get(family)) is not None:
                moved = one.signal + _TOWARDS * (float(signal) - one.signal)
                found[family] = replace(one, signal=moved, groups=one.groups + 1)
        return Curriculum(families=found)

    def evaluated(self, passed: Mapping[str, float]) -> Curriculum:
        """Return what follows a held-out evaluation: pass@1 by family."""
        found = dict(self.families)
        for family, now in passed.items():
            if (one := found.get(family)) is not None:
                gained = 0.0 if one.held_out is None else now - one.held_out
                moved = one.moved + _MOVED * (gained - one.moved)
                found[family] = replace(one, held_out=now, moved=moved)
        return Curriculum(families=found)

    def factor(self, family: str) -> float:
        """By which a family's weight counts; a family that is not known counts as a new one."""
        return self.families.get(family, _UNSEEN).factor

    def shares(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Return the probability of each family, from the swarm's weights; they sum to 1."""
        raw = {family: weight * self.factor(family) for family, weight in weights.items()}
        total = sum(raw.values())
        return {family: one / total for family, one in raw.items()}

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint keeps it."""
        return {family: asdict(one) for family, one in self.families.items()}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any] | None, families: Iterable[str]) -> Curriculum:
        """Take over what a checkpoint saved of these families; others begin anew."""
        known = {one.name for one in fields(Lately)}
        return cls(
            families={
                family: Lately(
                    **{k: v for k, v in ((saved or {}).get(family) or {}).items() if k in known}
                )
                for family in families
            }
        )


def num_effective(shares: Mapping[str, float]) -> float:
    """How many families are drawn from in effect: the exponential of the shares' entropy."""
    return math.exp(-sum(one * math.log(one) for one in shares.values() if one > 0))


_UNSEEN: Final = Lately()

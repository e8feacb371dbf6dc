"""How many groups of a round are a node's own: I against J, moved by what the node sees. Pure.

The paper fixes I and J and finds the middle best: with few own groups a node learns steeply and
forgets, and where everybody draws and few answer, there is nothing to draw. Here a node moves, one
group at a time and never more often than every `PACE` rounds, I + J staying what it was:

    own reward falls below its best of late    ─▶ one more of its own   (it forgets)
    a place for others' stays empty            ─▶ one more of its own   (too little is answered)
    own groups teach nearly as often as others' ─▶ back to half         (they are fresher)
    every place is filled, own teach less      ─▶ one more of others'

A quarter of the groups, and at least one, stay its own: who only draws starves everybody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

PACE: Final = 4
"""Rounds between two moves: what a move changes has to be seen first."""
REST: Final = 12
"""Rounds after a fall in which nothing is given to others."""
FULL: Final = 0.9
"""Share of the draws that came with signal from which on they count as filled."""
FALL: Final = 2.5
"""By how many standard errors the own reward may fall below its best of late before that is
forgetting: of few questions the reward jumps by itself."""
RICH: Final = 0.6
"""Share of own groups with signal from which on others' are not preferred."""
_QUICK, _MEAN, _SLOW = 0.2, 0.1, 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one round says."""

    own_signal: float | None
    """Share of own groups whose rewards differ; None without own groups."""
    filled: float | None
    """External groups trained on, as a share of J; None with J = 0."""
    reward: float | None
    """Mean reward on own fresh questions; None when it asked none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """A node's I and J, and what it remembers. A value: each round makes the next."""

    local: int
    """I."""
    total: int
    """I + J."""
    own_signal: float = 0.0
    filled: float = 1.0
    reward: float = 0.0
    best: float = 0.0
    """The own reward's best of late: it follows upwards at once, downwards slowly."""
    waited: int = 0
    """Rounds since the last move."""
    rest: int = 0
    """Rounds in which nothing is given to others yet."""

    @classmethod
    def start(cls, local: int, external: int) -> Balance:
        """Begin at the settings' I and J."""
        return cls(local=local, total=local + external)

    @property
    def external(self) -> int:
        """J."""
        return self.total - self.local

    @property
    def empty(self) -> float:
        """Places for others' groups that stay empty in a round, of late."""
        return (1.0 - self.filled) * self.external

    @property
    def least(self) -> int:
        """The least I that there is."""
        return min(self.total, max(1, math.ceil(self.total / 4)))

    @property
    def most(self) -> int:
        """The greatest: one group stays others', or it could not be seen when there are more."""
        return max(self.least, self.total - 1)

    def after(self, seen: Seen) -> Balance:
        """Return the balance of the next round."""
        now = self._remember(seen)
        if now.waited < PACE:
            return now
        step = now._step()
        local = min(now.most, max(now.least, now.local + step))
        return now if local == now.local else replace(now, local=local, waited=0)

    def _remember(self, seen: Seen) -> Balance:
        reward = _towards(self.reward, seen.reward, _MEAN)
        best = max(reward, _towards(self.best, reward, _SLOW))
        # A question's answers are right or wrong together; of a moving average this much is left.
        variance = best * (1 - best) / max(1, self.local) * _MEAN / (2 - _MEAN)
        falls = reward < best - FALL * math.sqrt(max(0.0, variance))
        return replace(
            self,
            own_signal=_towards(self.own_signal, seen.own_signal, _QUICK),
            filled=_towards(self.filled, seen.filled, _QUICK),
            reward=reward,
            best=best,
            waited=self.waited + 1,
            rest=REST if falls else max(0, self.rest - 1),
        )

    def _step(self) -> int:
        if self.rest == REST or self.empty >= 1:
            return 1
        if self.own_signal >= RICH:
            return int(self.local < self.total / 2)
        return -1 if self.filled >= FULL and not self.rest else 0

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any] | None, local: int, external: int) -> Balance:
        """Take over what a checkpoint kept; begin anew without one, or when I + J is another."""
        if kept is None or kept.get("total") != local + external:
            return cls.start(local, external)
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in kept.items() if key in known})


def _towards(old: float, new: float | None, share: float) -> float:
    return old if new is None else old + share * (new - old)

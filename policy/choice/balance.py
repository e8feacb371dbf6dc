"""How many groups of a round are a node's own: I against J, moved by what the node sees. Pure.

The paper fixes I and J and finds the middle best: with few own groups a node learns steeply and
forgets, and where everybody draws and few answer, there is nothing to draw. Here a node moves, one
group at a time and never more often than every `PACE` rounds, I + J staying what it was, towards
more groups with signal:

    own reward falls below its best of late     ─▶ one more of its own  (it forgets)
    own groups teach nearly as often as others' ─▶ back to half         (they are fresher)
    the buffer runs dry, and one place more of its own fills others' better than it costs
                                                ─▶ one more of its own  (too little is answered)
    the buffer never does, own groups teach less ─▶ one more of others'

Dry is not the same as short: where right answers are rare a draw ends at its bound (`oversample`)
with places left empty, and yet each of those places looks through so many groups that it brings
more than an own question does.

A quarter of the groups stays its own, and a quarter others': who only draws starves everybody, and
who never draws does not see when there is something.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

PACE: Final = 4
"""Rounds between two moves: what a move changes has to be seen first."""
REST: Final = 24
"""Rounds after it had to take a group back in which it gives none away."""
DRY: Final = 0.5
"""Share of the rounds in which the buffer runs dry from which on too little is answered."""
WET: Final = 0.2
"""And up to which there is enough."""
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
    drawn: float | None
    """External groups looked at, as a share of the most that may be; None with J = 0."""
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
    filled: float = 0.5
    drawn: float = 0.5
    dry: float = 0.0
    """Share of the rounds in which the buffer had no more while places were left."""
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
    def least(self) -> int:
        """The least I that there is."""
        return min(self.total, max(1, math.ceil(self.total / 4)))

    @property
    def most(self) -> int:
        """The greatest."""
        return max(self.least, self.total - self.least)

    def after(self, seen: Seen) -> Balance:
        """Return the balance of the next round."""
        now = self._remember(seen)
        if now.waited < PACE:
            return now
        step = now._step()
        local = min(now.most, max(now.least, now.local + step))
        if local == now.local:
            return now
        rest = REST if step > 0 else now.rest
        return replace(now, local=local, waited=0, rest=rest)

    def _remember(self, seen: Seen) -> Balance:
        reward = _towards(self.reward, seen.reward, _MEAN)
        best = max(reward, _towards(self.best, reward, _SLOW))
        return replace(
            self,
            own_signal=_towards(self.own_signal, seen.own_signal, _QUICK),
            filled=_towards(self.filled, seen.filled, _QUICK),
            drawn=_towards(self.drawn, seen.drawn, _QUICK),
            dry=_towards(self.dry, _dry(seen), _QUICK),
            reward=reward,
            best=best,
            waited=self.waited + 1,
            rest=max(0, self.rest - 1),
        )

    def _step(self) -> int:
        if self._forgets():
            return 1
        if self.own_signal >= RICH:
            return int(self.local < self.total / 2)
        if self.dry >= DRY:
            return int(self._with_one_more() > self.filled * self.external)
        return (
            -1 if self.dry <= WET and self._of_a_place() > self.own_signal and not self.rest else 0
        )

    def _forgets(self) -> bool:
        # A question's answers are right or wrong together; of a moving average this much is left.
        variance = self.best * (1 - self.best) / max(1, self.local) * _MEAN / (2 - _MEAN)
        return self.reward < self.best - FALL * math.sqrt(max(0.0, variance))

    def _of_a_place(self) -> float:
        """Groups with signal that a place for others' would bring if the buffer were full."""
        return min(1.0, self.filled / self.drawn) if self.drawn > 0 else 0.0

    def _with_one_more(self) -> float:
        """Groups with signal, others' and the new own one, if everybody answered one more."""
        supply = self.filled * self.external * (self.local + 1) / max(1, self.local)
        return min(supply, (self.external - 1) * self._of_a_place()) + self.own_signal

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any] | None, local: int, external: int) -> Balance:
        """Take over what a checkpoint saved; begin anew without one, or when I + J is another."""
        if saved is None or saved.get("total") != local + external:
            return cls.start(local, external)
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in saved.items() if key in known})


def _dry(seen: Seen) -> float | None:
    if seen.filled is None or seen.drawn is None:
        return None
    return float(seen.filled < 1 and seen.drawn < 1)


def _towards(old: float, new: float | None, share: float) -> float:
    return old if new is None else old + share * (new - old)

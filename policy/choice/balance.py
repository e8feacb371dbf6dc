"""How many groups of a round are a node's own: I against J, moved by what the node sees. Pure.

The paper fixes I and J and finds the middle best. What a round learns from is the groups with
signal that it trains on, and it finds them by looking: at its own, I of them, and at what others
offer. Looking is cheap, places are not. So a place is others' for as long as it pays:

    this many places are filled in a round         ─▶ others' as long as that is likelier than
                                                      that one more own question teaches
    own reward falls below its best of late        ─▶ one more own place (it forgets)
    nothing is on offer for `SILENT` rounds        ─▶ home: all places are its own
    at home, every `VISIT` rounds                  ─▶ one place is lent to others, to see whether
                                                      it would pay

I + J stays what it was, at most half of the places are others' (own groups are fresher, and who
only draws starves everybody), and at home there are as many own ones as alone: a swarm that offers
nothing costs one question in `VISIT` rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

PACE: Final = 3
"""Rounds between two moves: what a move changes has to be seen first."""
REST: Final = 24
"""Rounds after it had to take a place back, since it forgot, in which it gives none away."""
SILENT: Final = 3
"""Rounds in a row with nothing on offer after which it goes home at once."""
VISIT: Final = 6
"""Rounds between two looks at what others offer, at home."""
WORTH: Final = 0.8
"""Of an own group with signal: one of others' of which it is not yet known that it is there."""
IDLE: Final = 0.05
"""Share of the rounds in which a place has to be filled to be others' at all."""
FALL: Final = 2.5
"""By how many standard errors the own reward may fall below its best of late before that is
forgetting: of few questions the reward jumps by itself."""
_HOPE = 0.3
"""What is thought of the settings' places for others before anything is known of them."""
_VISITED, _QUICK, _MEAN, _SLOW = 0.5, 0.15, 0.1, 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one round says."""

    own_signal: float | None
    """Share of own groups whose rewards differ; None without own groups."""
    drawn: int | None
    """External groups looked at; None with J = 0."""
    usable: int
    """Of those, that could be trained on, chosen or not."""
    exhausted: bool
    """Whether it looked at all that it could: there were no more of them, or no more allowed."""
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
    filled: tuple[float, ...] = ()
    """Of 1, 2, … places for others': the share of rounds in which so many could be filled. What
    is not there counts as never."""
    reward: float = 0.0
    best: float = 0.0
    """The own reward's best of late: it follows upwards at once, downwards slowly."""
    waited: int = 0
    """Rounds since the last move."""
    silent: int = 0
    """Looks in a row at which nothing was on offer."""
    rest: int = 0
    """Rounds in which nothing is given to others yet."""

    @classmethod
    def start(cls, local: int, external: int) -> Balance:
        """Begin at the settings' I and J, as if so many places were sometimes filled."""
        total = local + external
        filled = tuple(_HOPE if place < external else 0.0 for place in range(total))
        return cls(local=local, total=total, filled=filled)

    @property
    def external(self) -> int:
        """J: at home that of the visits, every `VISIT` rounds."""
        if self.local < self.total:
            return self.total - self.local
        return int(self.total > 1 and self.waited % VISIT == VISIT - 1)

    @property
    def own(self) -> int:
        """I of the next round: one less than `local` when visiting."""
        return self.total - self.external

    @property
    def most_external(self) -> int:
        """The most places that may become others'."""
        return self.total // 2

    def after(self, seen: Seen) -> Balance:
        """Return the balance of the next round."""
        now = self._remember(seen)
        places = now.total - now.local
        if places and now.silent >= SILENT:
            return replace(now, local=now.total, waited=0, filled=(0.0,) * now.total)
        if now.waited < PACE:
            return now
        step = now._step(places)
        if not step:
            return now
        rest = REST if step > 0 and now._forgets() else now.rest
        return replace(now, local=now.local + step, waited=0, rest=rest)

    def _remember(self, seen: Seen) -> Balance:
        reward = _towards(self.reward, seen.reward, _MEAN)
        best = max(reward, _towards(self.best, reward, _SLOW))
        return replace(
            self,
            own_signal=_towards(self.own_signal, seen.own_signal, _QUICK),
            filled=self._filled_after(seen),
            reward=reward,
            best=best,
            waited=self.waited + 1,
            silent=self.silent if seen.drawn is None else 0 if seen.drawn else self.silent + 1,
            rest=max(0, self.rest - 1),
        )

    def _filled_after(self, seen: Seen) -> tuple[float, ...]:
        if seen.drawn is None:
            return self.filled
        # One that had enough has not looked whether there were more.
        known = self.total if seen.exhausted else seen.usable
        weight = _VISITED if self.local == self.total else _QUICK
        return tuple(
            _towards(self._filled(place), float(place < seen.usable), weight)
            if place < known
            else self._filled(place)
            for place in range(self.total)
        )

    def _filled(self, place: int) -> float:
        return self.filled[place] if place < len(self.filled) else 0.0

    def _step(self, places: int) -> int:
        """Return 1 for one more own place, -1 for one more of others'."""
        if places > self.most_external or (places and (self._forgets() or not self._pays(places))):
            return 1
        if places >= self.most_external or self.rest or self.silent or self._forgets():
            return 0
        if not places and self.own_signal <= IDLE:
            return -int(self.waited >= VISIT)  # there is something, and at home hardly anything
        return -int(WORTH * self._filled(places) > max(self.own_signal, IDLE))

    def _pays(self, places: int) -> bool:
        """Whether the last of the places that are others' is better so."""
        if places == 1 and self.own_signal <= IDLE:
            return True  # looking is what it is for, where hardly anything teaches
        return self._filled(places - 1) >= max(self.own_signal, IDLE)

    def _forgets(self) -> bool:
        # A question's answers are right or wrong together; of a moving average this much is left.
        variance = self.best * (1 - self.best) / max(1, self.local) * _MEAN / (2 - _MEAN)
        return self.reward < self.best - FALL * math.sqrt(max(0.0, variance))

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any] | None, local: int, external: int) -> Balance:
        """Take over what a checkpoint saved; begin anew without one, or when I + J is another.

        Of one of an earlier version, which remembers other things, I and J are taken over.
        """
        begun = cls.start(local, external)
        if saved is None or saved.get("total") != begun.total:
            return begun
        known = {field.name for field in fields(cls)}
        kept = {key: value for key, value in saved.items() if key in known}
        filled = kept.get("filled")
        kept["filled"] = tuple(filled) if isinstance(filled, (list, tuple)) else begun.filled
        return replace(begun, **kept)


def _towards(old: float, new: float | None, share: float) -> float:
    return old if new is None else old + share * (new - old)

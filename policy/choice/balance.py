"""How many groups of a round are a node's own: I against J, moved by what the node sees. Pure.

The paper fixes I and J and finds the middle best. What a round learns from is the groups with
signal that it trains on, and it finds them by looking: at its own, I of them, and at what others
offer. Looking is cheap, places are not. So a place is others' for as long as it pays:

    this many places are filled in a round         ─▶ others' as long as that is likelier than
                                                      that one more own question teaches
    own reward falls below its best of late        ─▶ one more own place (it forgets)
    nothing is on offer before a round             ─▶ all places of that round are its own
    none pays                                      ─▶ home: all are its own
    at home, every `VISIT` rounds                  ─▶ one place is lent to others, to see whether
                                                      it would pay

What is on offer is asked before own questions are: news that is late, or a swarm that is gone,
costs nothing, and the round in which there is some again is played with others. How many places
pay is moved to at once: where right answers are rare, the rounds lost on the way are the dear ones.

I + J stays what it was, at most half of the places are others' (own groups are fresher, and who
only draws starves everybody), and at home there are as many own ones as alone: a swarm that offers
nothing costs one question in `VISIT` rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import takewhile
from typing import Any, Final

PACE: Final = 3
"""Rounds between two moves: what a move changes has to be seen first."""
REST: Final = 24
"""Rounds after it had to take a place back, since it forgot, in which it gives none away."""
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
    unseen: int = 0
    """Rounds since the last look at what others offer."""
    empty: bool = False
    """Whether nothing is on offer."""
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
        """J: none where nothing is on offer; at home that of the visits."""
        return 0 if self.empty else self._wanted

    @property
    def own(self) -> int:
        """I of the next round: one less than `local` when visiting."""
        return self.total - self.external

    @property
    def asks(self) -> bool:
        """Whether the next round depends on there being anything on offer."""
        return self._wanted > 0

    @property
    def _wanted(self) -> int:
        if self.local < self.total:
            return self.total - self.local
        return int(self.total > 1 and self.unseen >= VISIT - 1)

    @property
    def most_external(self) -> int:
        """The most places that may become others'."""
        return self.total // 2

    def told(self, *, on_offer: bool) -> Balance:
        """Return the balance of a round before which there is something on offer, or nothing."""
        return replace(self, empty=not on_offer)

    def after(self, seen: Seen) -> Balance:
        """Return the balance of the next round."""
        now = self._remember(seen)
        places = now.total - now.local
        if now.waited < PACE or now.empty:
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
            unseen=self.unseen + 1 if seen.drawn is None else 0,
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
        """Return how many more places are to be own ones; fewer than none are more of others'."""
        if places > self.most_external or (places and (self._forgets() or not self._pays(places))):
            return 1
        if places >= self.most_external or self.rest or self._forgets():
            return 0
        if not places and self.own_signal <= IDLE:
            return -int(self.waited >= VISIT)  # there is something, and at home hardly anything
        worth = [WORTH * self._filled(place) for place in range(places, self.most_external)]
        better = takewhile(lambda one: one > max(self.own_signal, IDLE), worth)
        return -len(list(better))

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

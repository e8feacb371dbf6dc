"""Limits how much of the external signal may come from one source. Pure.

Right answers cost their sender nothing, since whoever makes a question has its answer. So being
right earns nobody a larger part: what one network gives, and what one publisher gives, has a
ceiling beside the others that are there. Names and connections are free, networks are not.

    ceiling = 1.1 × the signal of all ÷ the number of networks, each as one that gives as much as
              a typical one (the median, weighed by signal)

*Signal* is the sum of |advantage| over what was trained on, lately. Networks are counted by what
they give, so that many that hardly give anything lower nobody's ceiling. Below the ceilings, places
go first to the network that has given least, then to the connection, then to the publisher.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from shoal_wire.types import PeerId

_KEPT: Final = 0.95
"""Share of a source's signal that still counts a round later: the last twenty or so count."""
_OVER_EVEN: Final = 1.1
"""A ceiling beside an even share. In courses of eight publishers and one who always has signal
(tests/policy/choice/test_sources.py) 1.1 leaves that one 14.7 % of the signal where the others have
any one time in ten, and costs honest ones 2 % of theirs. 1.2 leaves it 15.6 % and costs the same;
at 1.0 honest ones hold each other down.

A network that has given so many times the mean no longer counts towards what a round looks for, so
that it goes on looking for others. In the same courses 20 networks of 28, which always have signal,
give 77 % of it, and 87 % without this."""
_LEAST_USE: Final = 0.25
"""Share of a round's places by which a ceiling is reckoned at least: where others give next to
nothing, what is there is still learnt from."""
_NOTHING: Final = 1e-3
"""Signal below which a source is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A leased group as a choice sees it."""

    family: str
    publisher: PeerId
    signal: float
    """Sum of |advantage| over what would be trained on of it."""
    network: str
    connection: str
    """The network and the connection by which it came, as the node names them. Groups of which the
    node does not know either share one name."""


@dataclass(slots=True)
class _Level:
    """Signal by source, of one kind of source."""

    had: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    total: float = 0.0
    ranked: list[tuple[float, str]] = field(default_factory=list)
    """The sources as they stood when the round began, the greatest first."""

    def add(self, source: str, signal: float) -> None:
        self.had[source] += signal
        self.total += signal

    def scaled(self, kept: float) -> _Level:
        """Return a copy in which this share of each signal is left."""
        level = _Level()
        for source, signal in self.had.items():
            if signal * kept > _NOTHING:
                level.add(source, signal * kept)
        level.ranked = sorted(((s, name) for name, s in level.had.items()), reverse=True)
        return level

    def beside(self, source: str) -> tuple[float, float]:
        """Return what all others have given, and what a typical one of them has.

        Half of the others' signal comes from sources that give at least that. 0, 0 without any.
        """
        others = [signal for signal, name in self.ranked if name != source]
        total, reached = sum(others), 0.0
        for signal in others:
            reached += signal
            if 2 * reached >= total:
                return total, signal
        return 0.0, 0.0


@dataclass(slots=True)
class Sources:
    """The signal that networks, connections and publishers have given lately. Changes in place."""

    _networks: _Level = field(default_factory=_Level)
    _connections: _Level = field(default_factory=_Level)
    _publishers: _Level = field(default_factory=_Level)

    def next_round(self) -> Sources:
        """Return a copy as the next round begins."""
        return self._scaled(_KEPT)

    def copy(self) -> Sources:
        """Return a copy, to try a choice on."""
        return self._scaled(1.0)

    def _scaled(self, kept: float) -> Sources:
        levels = (self._networks, self._connections, self._publishers)
        return Sources(*(level.scaled(kept) for level in levels))

    def add(self, one: Candidate) -> None:
        """Count a group that is trained on."""
        self._networks.add(one.network, one.signal)
        self._connections.add(one.connection, one.signal)
        self._publishers.add(one.publisher, one.signal)

    def order(self, one: Candidate) -> list[float]:
        """Return what a group is chosen by: the lower, the sooner."""
        return [
            self._networks.had.get(one.network, 0.0),
            self._connections.had.get(one.connection, 0.0),
            self._publishers.had.get(one.publisher, 0.0),
        ]

    def is_over(self, one: Candidate, full_round: float) -> bool:
        """Return whether a group's network or publisher has given as much as one may.

        `full_round` is the signal of a round whose places are all filled.
        """
        others, typical = self._networks.beside(one.network)
        if not typical:
            return False
        least = _LEAST_USE * full_round / (1.0 - _KEPT)
        signal = max(self._networks.total, least)
        ceiling = _OVER_EVEN * signal / (1.0 + others / typical)
        had = self._networks.had.get(one.network, 0.0)
        had = max(had, self._publishers.had.get(one.publisher, 0.0))
        # Half of the group is counted: on average a ceiling is then neither passed nor missed. One
        # group is always allowed, and whoever has given no more than is typical is never over.
        return had > typical and had + one.signal / 2 > max(ceiling, one.signal)

    def is_ahead(self, network: str) -> bool:
        """Return whether a network has given clearly more than the mean."""
        mean = self._networks.total / max(1, len(self._networks.had))
        return self._networks.had.get(network, 0.0) > _OVER_EVEN * mean

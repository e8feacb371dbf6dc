"""Limits how much of the external signal may come from one source. Pure.

Right answers cost their sender nothing, since the peer that makes a question has its answer. So
being right earns no source a larger part. Names and connections are free and networks are not, so a
source is the network of a group's publisher. It counts once this node has been connected to the
publisher, now or earlier: only a connection proves where a name is. All publishers that this node
has never met are one source together, whichever neighbours passed their groups on.

    ceiling = 1.1 × the signal of all ÷ the number of networks, each as one that gives as much as
              a typical one (the median, weighed by signal), but at least a 25th of it;
              of the publishers never met, 15 % of it

*Signal* is the sum of |advantage| over what was trained on, over the last twenty rounds or so.
Networks are counted by what they give, so that many that hardly give anything lower no other
network's ceiling. Below the ceilings, places go first to the source that has given least.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

NEVER_MET: Final = ""
"""The source of all publishers that this node has never been connected to."""

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
_LEAST_CEILING: Final = 0.04
"""Share of the signal that any network may give. Among some fifty networks an even share is three
groups in twenty rounds, and chance alone takes honest ones above it: without this, 48 honest
networks that have signal one time in ten lost 14 % of it, and 3 % with it."""
_NEVER_MET_SHARE: Final = 0.15
"""Share of the signal that publishers never met may give. One machine hides behind any number of
neighbours, under any number of names, and gives no more; it may give an even share beside that
under names that this node has met. Honest publishers are met within minutes
(`shoal_p2p.peers.discovery`)."""
_LEAST_USE: Final = 0.25
"""Share of a round's places by which a network's ceiling is reckoned at least: where others give
next to nothing, what is there is still trained on."""
_NOTHING: Final = 1e-3
"""Signal below which a source is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A leased group as a choice sees it."""

    family: str
    signal: float
    """Sum of |advantage| over what would be trained on of it."""
    network: str
    """The network of its publisher, as the node names it; `NEVER_MET` where that is not proven."""


@dataclass(slots=True)
class Sources:
    """The signal that each source has given in the last rounds. Changes in place."""

    _had: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _total: float = 0.0
    _ranked: list[tuple[float, str]] = field(default_factory=list)
    """The sources as they stood when the round began, the greatest first."""

    def next_round(self) -> Sources:
        """Return a copy as the next round begins."""
        return self._scaled(_KEPT)

    def copy(self) -> Sources:
        """Return a copy, to try a choice on."""
        return self._scaled(1.0)

    def _scaled(self, kept: float) -> Sources:
        copy = Sources()
        for source, signal in self._had.items():
            if signal * kept > _NOTHING:
                copy._count(source, signal * kept)
        copy._ranked = sorted(((s, name) for name, s in copy._had.items()), reverse=True)
        return copy

    def add(self, one: Candidate) -> None:
        """Count a group that is trained on."""
        self._count(one.network, one.signal)

    def _count(self, source: str, signal: float) -> None:
        self._had[source] += signal
        self._total += signal

    def order(self, one: Candidate) -> float:
        """Return what a group is chosen by: the lower, the sooner."""
        return self._had.get(one.network, 0.0)

    def is_over(self, one: Candidate, full_round: float) -> bool:
        """Return whether a group's source has given as much as it may.

        `full_round` is the signal of a round whose places are all filled.
        """
        others, typical = self._beside(one.network)
        had = self._had.get(one.network, 0.0)
        # A source that has given no more than is typical is never over.
        if not typical or (had <= typical and one.network != NEVER_MET):
            return False
        # Half of the group is counted: on average a ceiling is then neither passed nor missed. One
        # group is always allowed.
        ceiling = self._ceiling(one.network, others / typical, full_round)
        return had + one.signal / 2 > max(ceiling, one.signal)

    def _ceiling(self, network: str, num_others: float, full_round: float) -> float:
        if network == NEVER_MET:
            return _NEVER_MET_SHARE * self._total
        signal = max(self._total, _LEAST_USE * full_round / (1.0 - _KEPT))
        return signal * max(_LEAST_CEILING, _OVER_EVEN / (1.0 + num_others))

    def _beside(self, source: str) -> tuple[float, float]:
        """Return what all others have given, and what a typical one of them has.

        Half of the others' signal comes from sources that give at least that. 0, 0 without any.
        """
        others = [signal for signal, name in self._ranked if name != source]
        total, reached = sum(others), 0.0
        for signal in others:
            reached += signal
            if 2 * reached >= total:
                return total, signal
        return 0.0, 0.0

    def is_ahead(self, network: str) -> bool:
        """Return whether a network has given clearly more than the mean."""
        mean = self._total / max(1, len(self._had))
        return self._had.get(network, 0.0) > _OVER_EVEN * mean

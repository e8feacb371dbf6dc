"""Limits how much of the external signal one source may contribute. Pure.

A correct answer costs its sender nothing, since the author of a question knows its answer. So being
right does not raise a source's share. Names and connections are free and networks are not, so a
source is the IP network of a group's publisher. It is attributed only once this node has been
connected to the publisher, now or earlier: only a connection proves an address. All publishers that
this node has never connected to count as one source, whichever neighbour forwarded their groups.

    ceiling = 1.1 × total signal ÷ N, at least 1/25 of the total;
              N = 1 + the other networks' signal ÷ that of a typical one (signal-weighted median)
    For all unconnected publishers together it is 15 % of the total.

*Signal* is the sum of |advantage| over everything trained on, over about the last twenty rounds.
Networks are counted by what they contribute, so many small ones do not lower another network's
ceiling. Below the ceilings, slots go first to the source that has contributed least.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

UNKNOWN_NETWORK: Final = ""
"""The source of all publishers that this node has never connected to."""

_DECAY: Final = 0.95
"""Share of a source's signal that still counts one round later: about twenty rounds count."""
_CEILING_FACTOR: Final = 1.1
"""A ceiling relative to an even share. In simulated runs of eight publishers, where one always
has signal (tests/policy/choice/test_sources.py), 1.1 limits that one to 14.7 % of the signal where
the others have any one time in ten, and costs honest ones 2 % of theirs. 1.2 allows 15.6 % at the
same cost; at 1.0 honest publishers limit each other.

A network above this multiple of the mean no longer counts towards the number of candidates, so the
round keeps looking for others. In the same runs 20 networks of 28 that always have signal give 77 %
of it, and 87 % without this rule."""
_MIN_CEILING: Final = 0.04
"""Share of the signal that any network may give. Among fifty networks an even share is three groups
in twenty rounds, and chance alone lifts honest ones above it: without this minimum, 48 honest
networks with signal one time in ten lost 14 % of it, and 3 % with it."""
_UNKNOWN_SHARE: Final = 0.15
"""Share of the signal that unconnected publishers may give together. It limits one machine behind
any number of neighbours and names; that machine may give another even share under names that this
node has connected to. Honest publishers are connected within minutes (`shoal_p2p.peers.discovery`).
"""
_MIN_FILL: Final = 0.25
"""Minimum share of a round's slots from which a ceiling is computed: where other sources give
almost nothing, the available groups are still trained on."""
_MIN_SIGNAL: Final = 1e-3
"""Signal below which a source is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A leased group as the strategy sees it."""

    family: str
    signal: float
    """Sum of |advantage| over the completions that would be trained on."""
    network: str
    """The network of its publisher, as the node names it; `UNKNOWN_NETWORK` where that is not
    proven."""


@dataclass(slots=True)
class SourceQuota:
    """The signal of each source in recent rounds. Changes in place."""

    _signal: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _total: float = 0.0
    _ranked: list[tuple[float, str]] = field(default_factory=list)
    """The sources at the start of the round, largest first."""

    def next_round(self) -> SourceQuota:
        """Return a decayed copy for the next round."""
        return self._scaled(_DECAY)

    def copy(self) -> SourceQuota:
        """Return a copy, to try a choice on."""
        return self._scaled(1.0)

    def _scaled(self, kept: float) -> SourceQuota:
        copy = SourceQuota()
        for source, signal in self._signal.items():
            if signal * kept > _MIN_SIGNAL:
                copy._count(source, signal * kept)
        copy._ranked = sorted(((s, name) for name, s in copy._signal.items()), reverse=True)
        return copy

    def add(self, one: Candidate) -> None:
        """Count a group that is trained on."""
        self._count(one.network, one.signal)

    def _count(self, source: str, signal: float) -> None:
        self._signal[source] += signal
        self._total += signal

    def rank(self, one: Candidate) -> float:
        """Return the sort key of a group: the source's signal so far, lowest first."""
        return self._signal.get(one.network, 0.0)

    def is_exceeded(self, one: Candidate, full_round: float) -> bool:
        """Return whether a group's source has used its share.

        `full_round` is the signal of a round whose slots are all filled.
        """
        others, typical = self._others_of(one.network)
        had = self._signal.get(one.network, 0.0)
        # A source at or below the typical signal never exceeds its share.
        if not typical or (had <= typical and one.network != UNKNOWN_NETWORK):
            return False
        # Half of the group is counted, so that the ceiling is met on average. One group is always
        # allowed.
        ceiling = self._ceiling(one.network, others / typical, full_round)
        return had + one.signal / 2 > max(ceiling, one.signal)

    def _ceiling(self, network: str, num_others: float, full_round: float) -> float:
        if network == UNKNOWN_NETWORK:
            return _UNKNOWN_SHARE * self._total
        signal = max(self._total, _MIN_FILL * full_round / (1.0 - _DECAY))
        return signal * max(_MIN_CEILING, _CEILING_FACTOR / (1.0 + num_others))

    def _others_of(self, source: str) -> tuple[float, float]:
        """Return the total signal of all other sources, and that of a typical one (the median).

        Half of the others' signal comes from sources with at least that much. (0, 0) without any.
        """
        others = [signal for signal, name in self._ranked if name != source]
        total, reached = sum(others), 0.0
        for signal in others:
            reached += signal
            if 2 * reached >= total:
                return total, signal
        return 0.0, 0.0

    def is_above_mean(self, network: str) -> bool:
        """Return whether a network has given clearly more than the mean."""
        mean = self._total / max(1, len(self._signal))
        return self._signal.get(network, 0.0) > _CEILING_FACTOR * mean

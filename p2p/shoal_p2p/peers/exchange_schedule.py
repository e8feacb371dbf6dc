"""Schedules peer exchange: which connected peer is asked for its peers, and when. No I/O of its
own.

    too few peers   each connected one at once, and a random one again at intervals
    enough          a visited bootstrap at once, and one of the other peers at intervals

A node with enough peers learns little from each newcomer and needs it only after losing others;
then the remaining peers are asked. A node without peers asks again soon: of two that join together,
the first to ask does not hear of the second.
"""

from __future__ import annotations

import math
import random

from shoal_p2p.peers.targets import DiscoverySettings
from shoal_wire.types import PeerId


class ExchangeSchedule:
    """Remembers which connected peers were asked."""

    def __init__(
        self, settings: DiscoverySettings, bootstraps: frozenset[PeerId], rng: random.Random
    ) -> None:
        self._settings = settings
        self._bootstraps = bootstraps
        self._rng = rng
        self._queried: set[PeerId] = set()
        self._last_s = -math.inf

    def choose(self, connected: frozenset[PeerId], now: float) -> list[PeerId]:
        """Return the connected peers to ask now, and record them as asked; often empty."""
        self._queried &= connected
        is_due = now >= self._last_s + self.pause_s(connected)
        choose = self._chosen(connected, self._missing(connected), is_due=is_due)
        if choose:
            self._last_s = now
            self._queried.update(choose)
        return choose

    def _chosen(self, connected: frozenset[PeerId], missing: int, *, is_due: bool) -> list[PeerId]:
        fresh = sorted(connected - self._queried)
        at_once = fresh if missing > 0 else [p for p in fresh if p in self._bootstraps]
        if at_once or not is_due:
            return at_once
        pool = sorted(connected) if missing > 0 else fresh
        return self._rng.sample(pool, min(1, len(pool)))

    def pause_s(self, connected: frozenset[PeerId]) -> float:
        """Return the pause after the last exchange until one of these peers is asked again."""
        settings, missing = self._settings, self._missing(connected)
        if missing <= 0:
            return settings.backoff_s
        is_alone = missing >= settings.target_peers
        return settings.min_backoff_s if is_alone else settings.exchange_interval_s

    def _missing(self, connected: frozenset[PeerId]) -> int:
        return self._settings.target_peers - len(connected - self._bootstraps)

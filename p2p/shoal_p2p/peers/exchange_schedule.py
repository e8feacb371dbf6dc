"""Peer exchange: which connected peer is asked for others, and when. No I/O of its own.

    too few peers   each connected one at once, and one of them again now and then
    enough          a bootstrap at once, which was visited for that; of others one now and then

Who has enough peers learns next to nothing from each that comes, and needs it only when they have
gone: those that are left are asked then. Who has met nobody asks again soon: of two that came
together, the first to ask hears nothing of the second.
"""

from __future__ import annotations

import math
import random

from shoal_p2p.peers.targets import DiscoverySettings
from shoal_wire.types import PeerId


class ExchangeSchedule:
    """Remembers who of the connected was asked."""

    def __init__(
        self, settings: DiscoverySettings, bootstraps: frozenset[PeerId], rng: random.Random
    ) -> None:
        self._settings = settings
        self._bootstraps = bootstraps
        self._rng = rng
        self._asked: set[PeerId] = set()
        self._last_s = -math.inf

    def whom(self, connected: frozenset[PeerId], now: float) -> list[PeerId]:
        """Return whom of those connected to ask, who count as asked then; often nobody."""
        self._asked &= connected
        is_due = now >= self._last_s + self.pause_s(connected)
        whom = self._chosen(connected, self._missing(connected), is_due=is_due)
        if whom:
            self._last_s = now
            self._asked.update(whom)
        return whom

    def _chosen(self, connected: frozenset[PeerId], missing: int, *, is_due: bool) -> list[PeerId]:
        fresh = sorted(connected - self._asked)
        at_once = fresh if missing > 0 else [p for p in fresh if p in self._bootstraps]
        if at_once or not is_due:
            return at_once
        pool = sorted(connected) if missing > 0 else fresh
        return self._rng.sample(pool, min(1, len(pool)))

    def pause_s(self, connected: frozenset[PeerId]) -> float:
        """Return how long after the last asking one of these is asked again."""
        settings, missing = self._settings, self._missing(connected)
        if missing <= 0:
            return settings.settled_s
        is_alone = missing >= settings.target_peers
        return settings.alone_s if is_alone else settings.exchange_interval_s

    def _missing(self, connected: frozenset[PeerId]) -> int:
        return self._settings.target_peers - len(connected - self._bootstraps)

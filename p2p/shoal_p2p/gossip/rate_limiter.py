"""Limits how much of one peer's messages is read, and decides when a peer is flooding. Pure.

Buckets for each peer, and others, twice as large, for each network (`inbound_gate.prefix_of`), in
which all of its peers are held back together but none is blamed.  *Pace* counts every message;
beyond it the stream is simply not read for a while, and TCP holds the peer back.  *Waste* counts
what brought nothing: copies, messages judged and not kept.  *Work* counts what judging took.
A peer held back for its own waste, or for work that it made itself, for longer than a grace second
is flooding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from shoal_base.bounded import PIECE_BYTES, BoundedDict
from shoal_p2p.fair.buckets import Rate, TokenBucket
from shoal_wire.types import PeerId

_FORGIVE = 0.1
"""Seconds of holding back forgotten in each second."""
_NETWORK_SCALE = 2.0

K = TypeVar("K", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodLimits:
    """Rates of one peer. A node carries some hundred messages a second from all peers together."""

    pace_per_second: float = 300.0
    pace_burst: float = 3000.0
    waste_per_second: float = 200.0
    waste_burst: float = 2000.0
    work_per_second: float = 0.2
    """Seconds of work, by count (`shoal_p2p.intake.batch_decoder`), that a peer's messages may
    make."""
    work_burst: float = 0.9
    """A full debt of it is paid in 4.5 s: a sender that waits for a window longer gives up."""
    grace_s: float = 1.0
    """Seconds held back for waste before it counts; from then on each second does."""


@lru_cache(maxsize=8)
def _rates(limits: FloodLimits, scale: float) -> tuple[Rate, Rate, Rate]:
    """Return the rates of pace, waste and work, which all flows of a size share."""
    pace = Rate(burst=scale * limits.pace_burst, per_second=scale * limits.pace_per_second)
    waste = Rate(burst=scale * limits.waste_burst, per_second=scale * limits.waste_per_second)
    work = Rate(burst=scale * limits.work_burst, per_second=scale * limits.work_per_second)
    return pace, waste, work


class PeerRateLimit:
    """The buckets of one peer, and through it those of its network."""

    __slots__ = (
        "_charged",
        "_grace_s",
        "_held_at",
        "_held_s",
        "_own_work",
        "_pace",
        "_waste",
        "_work",
        "network",
    )

    def __init__(self, limits: FloodLimits, now: float, scale: float = 1.0) -> None:
        self._grace_s = limits.grace_s
        pace, waste, work = _rates(limits, scale)
        self._pace, self._waste = TokenBucket(pace, now), TokenBucket(waste, now)
        self._work, self._own_work = TokenBucket(work, now), TokenBucket(work, now)
        self._held_s = 0.0
        self._held_at = now
        self._charged = 0
        self.network: PeerRateLimit | None = None
        """The things it shares with the other peers of its network."""

    @property
    def _flows(self) -> tuple[PeerRateLimit, ...]:
        return (self,) if self.network is None else (self, self.network)

    def arrived(self, num_messages: int, num_bytes: int, now: float) -> None:
        """Count what was read."""
        for flow in self._flows:
            flow._pace.owe(num_messages + num_bytes / PIECE_BYTES, now)

    def wasted(self, units: float, now: float) -> None:
        """Count what brought nothing; a first copy from each peer is no waste."""
        for flow in self._flows if units else ():
            flow._waste.owe(units, now)

    def worked(self, seconds: float, now: float, *, own_message: bool) -> None:
        """Count what judging a message cost; `own_message`: its author sent it itself."""
        for flow in self._flows:
            flow._work.owe(seconds, now)
        if own_message:
            self._own_work.owe(seconds, now)

    def wait_s(self, now: float) -> float:
        """Return for how long the peer should not be read now."""
        longest_s = 0.0
        for flow in self._flows:
            for bucket in (flow._pace, flow._waste, flow._work):
                wait_s = bucket.wait_s(0.0, now)
                if wait_s > longest_s:
                    longest_s = wait_s
        return longest_s

    def is_to_blame(self, now: float) -> bool:
        """Return whether the peer is held back for waste, or for work that it made itself.

        Who forwards what others made dear did nothing that it should not have.
        """
        return self._waste.available(now) < 0.0 or self._own_work.available(now) < 0.0

    def held(self, seconds: float, now: float) -> int:
        """Say that the peer was held back for waste for `seconds`, until `now`.

        Returns how many offences that made: one a second, after the grace.
        """
        idle = max(0.0, now - seconds - self._held_at)
        self._held_s = max(0.0, self._held_s - idle * _FORGIVE) + seconds
        self._held_at = now
        due = int(max(0.0, self._held_s - self._grace_s))
        fresh, self._charged = max(0, due - self._charged), due
        return fresh


class RateLimiter:
    """The flows of all peers; outlives their streams, so reconnecting resets nothing."""

    def __init__(self, limits: FloodLimits) -> None:
        self._limits = limits
        self._flows: BoundedDict[PeerId, PeerRateLimit] = BoundedDict()
        self._authors: BoundedDict[PeerId, PeerRateLimit] = BoundedDict()
        """Buckets of authors that have not been connected; no peer is in both."""
        self._networks: BoundedDict[str, PeerRateLimit] = BoundedDict()
        self._latest: tuple[PeerId, str | None, PeerRateLimit] | None = None
        """The flow asked for last: of one RPC it is some three times."""

    def flow(self, peer: PeerId, now: float, *, network: str | None = None) -> PeerRateLimit:
        """Return a peer's flow; the least recently used is forgotten beyond a bound."""
        latest = self._latest
        if latest is not None and latest[0] == peer and latest[1] == network:
            return latest[2]
        as_author = self._authors.pop(peer, None)
        own = self._flows.use(peer, lambda: as_author or PeerRateLimit(self._limits, now))
        own.network = (
            self._get(self._networks, network, now, _NETWORK_SCALE) if network is not None else None
        )
        self._latest = (peer, network, own)
        return own

    def wasted_by_author(self, author: PeerId, units: float, now: float) -> None:
        """Count what a peer's signature wasted, by whichever connection it came.

        It is held back for that where it is connected. Names that are not have a room of their own,
        so that no number of them makes the gate forget a connection.
        """
        flow = self._flows.get(author)
        if flow is None:
            flow = self._get(self._authors, author, now, 1.0)
        flow._waste.owe(units, now)  # its own: others of its network have no part in it

    def _get(
        self, flows: BoundedDict[K, PeerRateLimit], key: K, now: float, scale: float
    ) -> PeerRateLimit:
        return flows.use(key, lambda: PeerRateLimit(self._limits, now, scale))

"""Limits how much is read from each peer, and detects flooding. Pure.

Each peer has token buckets. Each network (`inbound_gate.prefix_of`) has buckets of twice the size,
which pause all of its peers together but blame none of them. *Pace* counts every message; above it
the stream is not read for a while, and TCP slows the peer down. *Waste* counts messages without
use: copies, and messages that were validated and not kept. *Work* counts the cost of validation. A
peer is flooding if it is paused for its own waste, or for work caused by its own messages, for
longer than a grace period of one second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, TypeVar

from shoal_base.bounded import PIECE_BYTES, BoundedDict
from shoal_base.ranges import Range, Ranged, SecondsOrZero
from shoal_p2p.fair.buckets import Rate, TokenBucket
from shoal_wire.types import PeerId

_FORGIVE = 0.1
"""Seconds of pause forgiven in each second."""
_NETWORK_SCALE = 2.0

K = TypeVar("K", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodLimits(Ranged):
    """Rates for one peer. A node carries a few hundred messages a second from all peers
    together."""

    pace_per_second: Annotated[float, Range("messages/s", 0, 1e6, is_open=True)] = 300.0
    pace_burst: Annotated[float, Range("messages", 0, 1e6, is_open=True)] = 3000.0
    waste_per_second: Annotated[float, Range("messages/s", 0, 1e6, is_open=True)] = 200.0
    waste_burst: Annotated[float, Range("messages", 0, 1e6, is_open=True)] = 2000.0
    work_per_second: Annotated[float, Range("s/s", 0, 1000, is_open=True)] = 0.2
    """Seconds of validation work, as estimated by `shoal_p2p.intake.batch_decoder`, that a peer's
    messages may cause."""
    work_burst: Annotated[float, Range("s", 0, 1000, is_open=True)] = 0.9
    """A full debt of this size is repaid in 4.5 s. Senders give up waiting for a window after
    that."""
    grace_s: SecondsOrZero = 1.0
    """Seconds of pause for waste that are free. Each further second counts as an offence."""


@lru_cache(maxsize=8)
def _rates(limits: FloodLimits, scale: float) -> tuple[Rate, Rate, Rate]:
    """Return the rates of pace, waste and work, shared by all limits of one scale."""
    pace = Rate(burst=scale * limits.pace_burst, per_second=scale * limits.pace_per_second)
    waste = Rate(burst=scale * limits.waste_burst, per_second=scale * limits.waste_per_second)
    work = Rate(burst=scale * limits.work_burst, per_second=scale * limits.work_per_second)
    return pace, waste, work


class PeerRateLimit:
    """The buckets of one peer, together with those of its network."""

    __slots__ = (
        "_charged",
        "_grace_s",
        "_levels",
        "_own_work",
        "_pace",
        "_paused_at",
        "_paused_s",
        "_waste",
        "_work",
    )

    def __init__(self, limits: FloodLimits, now: float, scale: float = 1.0) -> None:
        self._grace_s = limits.grace_s
        pace, waste, work = _rates(limits, scale)
        self._pace, self._waste = TokenBucket(pace, now), TokenBucket(waste, now)
        self._work, self._own_work = TokenBucket(work, now), TokenBucket(work, now)
        self._paused_s = 0.0
        self._paused_at = now
        self._charged = 0
        self._levels: tuple[PeerRateLimit, ...] = (self,)

    @property
    def network(self) -> PeerRateLimit | None:
        """Limits shared by all peers of one IP network."""
        return self._levels[1] if len(self._levels) > 1 else None

    @network.setter
    def network(self, shared: PeerRateLimit | None) -> None:
        self._levels = (self,) if shared is None else (self, shared)

    def charge_read(self, num_messages: int, num_bytes: int, now: float) -> None:
        """Charge messages and bytes that were read."""
        for level in self._levels:
            level._pace.debit(num_messages + num_bytes / PIECE_BYTES, now)

    def charge_waste(self, units: float, now: float) -> None:
        """Charge wasted units. The first copy from each peer is no waste."""
        for level in self._levels if units else ():
            level._waste.debit(units, now)

    def charge_work(self, seconds: float, now: float, *, own_message: bool) -> None:
        """Charge the cost of validating a message. `own_message`: its author sent it directly."""
        for level in self._levels:
            level._work.debit(seconds, now)
        if own_message:
            self._own_work.debit(seconds, now)

    def wait_s(self, now: float) -> float:
        """Return how long the peer should not be read from now, in seconds."""
        longest_s = 0.0
        for level in self._levels:
            for bucket in (level._pace, level._waste, level._work):
                if bucket.tokens < 0.0:
                    longest_s = max(longest_s, bucket.wait_s(0.0, now))
        return longest_s

    def is_to_blame(self, now: float) -> bool:
        """Return whether the peer is paused for waste, or for work caused by its own messages.

        A peer that forwards expensive messages of other authors is not to blame.
        """
        return self._waste.available(now) < 0.0 or self._own_work.available(now) < 0.0

    def charge_pause(self, seconds: float, now: float) -> int:
        """Record that reading was paused for waste for `seconds`, until `now`.

        Returns the number of offences: one for each second beyond the grace period.
        """
        idle = max(0.0, now - seconds - self._paused_at)
        self._paused_s = max(0.0, self._paused_s - idle * _FORGIVE) + seconds
        self._paused_at = now
        due = int(max(0.0, self._paused_s - self._grace_s))
        new, self._charged = max(0, due - self._charged), due
        return new


class RateLimiter:
    """The rate limits of all peers. They outlive connections, so reconnecting resets nothing."""

    def __init__(self, limits: FloodLimits) -> None:
        self._limits = limits
        self._peers: BoundedDict[PeerId, PeerRateLimit] = BoundedDict()
        self._authors: BoundedDict[PeerId, PeerRateLimit] = BoundedDict()
        """Limits of authors that are not connected. No peer is in both tables."""
        self._networks: BoundedDict[str, PeerRateLimit] = BoundedDict()
        self.network_of: dict[PeerId, str | None] = {}
        """The network of each peer that is being read, by `inbound_gate.prefix_of`."""
        self._latest: tuple[PeerId, str | None, PeerRateLimit] | None = None
        """The limit requested last: one RPC asks for it about three times."""

    def for_peer(self, peer: PeerId, now: float) -> PeerRateLimit:
        """Return a peer's limit. Beyond a bound the least recently used one is forgotten."""
        latest, network = self._latest, self.network_of.get(peer)
        if latest is not None and latest[0] == peer and latest[1] == network:
            return latest[2]
        as_author = self._authors.pop(peer, None)
        own = self._peers.use(peer, lambda: as_author or PeerRateLimit(self._limits, now))
        own.network = (
            self._get(self._networks, network, now, _NETWORK_SCALE) if network is not None else None
        )
        self._latest = (peer, network, own)
        return own

    def charge_author(self, author: PeerId, units: float, now: float) -> None:
        """Charge waste to the author that signed it, whichever connection delivered it.

        The author is paused for it when connected. Authors that are not connected have a table of
        their own, so that no number of them evicts the limit of a connection.
        """
        level = self._peers.get(author)
        if level is None:
            level = self._get(self._authors, author, now, 1.0)
        level._waste.debit(units, now)  # not charged to its network

    def _get(
        self, limits: BoundedDict[K, PeerRateLimit], key: K, now: float, scale: float
    ) -> PeerRateLimit:
        return limits.use(key, lambda: PeerRateLimit(self._limits, now, scale))

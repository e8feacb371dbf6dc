"""Tracks IHAVE and IWANT: ids to advertise to each peer, and the fate of those received. Pure.

Gossipsub advertises the messages of the last three heartbeats again at each heartbeat. In a small
swarm, where every subscriber gets every id because IHAVE is the only repair of drops by full queues
and busy validators, that was most of the traffic of a quiet node. Here each id is advertised to
each peer once, and not to peers known to have the message. What a peer then still lacks is repaired
by its gaps (`shoal_p2p.fetch.gap_repair`).

An advertised message is requested from one peer a second. Other peers that advertised it are
remembered, because an id is advertised once only: a busy validator may drop the message, and the
peer asked first may never have had it.

A peer that advertises an id and does not answer an immediate IWANT breaks a promise. Sending the
message keeps the promise, whatever its verdict is. While reading from a peer is paused, its
promises do not count: the message may be in the unread data, and the advertisement may have been
stale when it was read.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Iterable, Sequence
from typing import Protocol

from shoal_base.bounded import MANY, BoundedDict
from shoal_base.waits import REPLY_S, RETRY_S
from shoal_p2p.gossip.duplicate_tracker import GOSSIP_HEARTBEATS
from shoal_wire.types import PeerId

_REQUESTED_FACTOR = 16
"""Requests remembered, as a multiple of `max_ids`: each peer may advertise `max_ids`."""
READ_BEHIND_S = 0.5
"""After reading was paused for this long, a peer's promises do not count; pauses are recorded at
this interval. Each second of reading cancels one second of pause."""
_MAX_ALTERNATIVES = 4
"""Alternative peers remembered for a message. They are chosen at random, since peer ids cost
nothing."""
_OFFER_TTL_S = float(GOSSIP_HEARTBEATS)
"""A peer that advertises a message caches it for at most this long: one second per heartbeat."""


class MessageIndex(Protocol):
    """The messages that a peer has: `shoal_p2p.gossip.mesh.Mesh`."""

    def is_known(self, key: bytes, now: float) -> bool:
        """Return whether a message is cached or was seen."""

    def is_validating(self, key: bytes) -> bool:
        """Return whether a message awaits its verdict."""


class IHaveTracker:
    """Remembers the ids that each peer has or was sent in IHAVE, at most `max_ids` for each."""

    def __init__(self, max_ids: int) -> None:
        self._max_ids = max_ids
        self._held: dict[PeerId, dict[bytes, None]] = {}

    def add_holder(self, peer: PeerId, key: bytes) -> None:
        """Record that `peer` has a message. Beyond the limit the oldest id is forgotten, which
        costs one redundant IHAVE."""
        known = self._held.setdefault(peer, {})
        known[key] = None
        if len(known) > self._max_ids:
            del known[next(iter(known))]

    def without(self, key: bytes, peers: Iterable[PeerId]) -> list[PeerId]:
        """Return those of `peers` that are not known to have a message, nor were sent its id."""
        return [peer for peer in peers if key not in self._held.get(peer, ())]

    def filter_unseen(self, peer: PeerId, keys: Iterable[bytes]) -> list[bytes]:
        """Return those of `keys` that `peer` does not know of, and record them as known."""
        known = self._held.get(peer, {})
        found = [key for key in keys if key not in known]
        for key in found:
            self.add_holder(peer, key)
        return found

    def retain(
        self, peers: Container[PeerId], keys: Container[bytes], validating: Container[bytes] = ()
    ) -> None:
        """Forget peers that are gone, and ids that are neither cached nor being validated."""
        self._held = {
            peer: {key: None for key in known if key in keys or key in validating}
            for peer, known in self._held.items()
            if peer in peers
        }


class IWantTracker:
    """Tracks advertisements received, requests sent and promises, at most `max_ids` of each."""

    def __init__(self, *, max_ids: int, rng: random.Random) -> None:
        self._rng = rng
        self._requested_at = BoundedDict[bytes, float](_REQUESTED_FACTOR * max_ids)
        self._alternatives = BoundedDict[bytes, dict[PeerId, float]](max_ids)
        self._promises: dict[PeerId, tuple[bytes, float]] = {}
        """One requested id for each peer, and the deadline for its arrival."""

        self._read_pauses = BoundedDict[PeerId, tuple[float, float]](MANY)
        """Seconds for which reading from each peer was paused, and the time of the last pause."""

    def __len__(self) -> int:
        return len(self._requested_at) + len(self._alternatives) + len(self._promises)

    def on_ihave(
        self, peer: PeerId, keys: Sequence[bytes], known: MessageIndex, now: float
    ) -> list[bytes]:
        """Return the advertised ids to request now, and remember the peer for the others."""
        wanted = []
        for key in keys:
            if known.is_validating(key) or (
                self._is_requested(key, now) and not known.is_known(key, now)
            ):
                self._add_alternative(peer, key, now)
            elif not known.is_known(key, now):
                wanted.append(key)
        return wanted

    def _is_requested(self, key: bytes, now: float) -> bool:
        return now - self._requested_at.get(key, -math.inf) < RETRY_S

    def _add_alternative(self, peer: PeerId, key: bytes, now: float) -> None:
        alternatives = self._alternatives.setdefault(key, {})
        alternatives.setdefault(peer, now)
        if len(alternatives) > _MAX_ALTERNATIVES:
            del alternatives[self._rng.choice(list(alternatives))]

    def on_iwant_sent(self, peer: PeerId, keys: Sequence[bytes], now: float) -> None:
        """Record an IWANT for `keys` that `peer` has just advertised. One of them, chosen at
        random, becomes its promise."""
        self.mark_requested(keys, now)
        if (
            peer not in self._promises
            and len(self._promises) < MANY
            and not self._is_read_behind(peer, now)
        ):
            self._promises[peer] = (self._rng.choice(keys), now + REPLY_S)

    def mark_requested(self, keys: Sequence[bytes], now: float) -> None:
        """Record an IWANT for `keys` that the peer may no longer have, so without a promise."""
        for key in keys:
            self._requested_at[key] = now

    def on_read_paused(self, peer: PeerId, seconds: float, now: float) -> None:
        """Record that reading from `peer` was paused for `seconds`, until `now`."""
        before, at = self._read_pauses.get(peer, (0.0, now))
        idle = max(0.0, now - seconds - at)
        self._read_pauses[peer] = (max(0.0, before - idle) + seconds, now)

    def _is_read_behind(self, peer: PeerId, now: float) -> bool:
        paused_s, at = self._read_pauses.get(peer, (0.0, now))
        return paused_s - (now - at) >= READ_BEHIND_S

    def on_message(self, peer: PeerId, key: bytes) -> None:
        """Record that `peer` has sent a message."""
        if self._promises.get(peer, (b"", 0.0))[0] == key:
            del self._promises[peer]

    def pending_iwant(self, known: MessageIndex, now: float) -> dict[PeerId, list[bytes]]:
        """Return, by peer, the ids to request again: dropped during validation, or requested
        without an answer. Each entry uses up that peer's advertisement."""
        found: dict[PeerId, list[bytes]] = {}
        for key, alternatives in list(self._alternatives.items()):
            if known.is_validating(key) or self._is_requested(key, now):
                continue
            holders = [peer for peer, at in alternatives.items() if now - at <= _OFFER_TTL_S]
            if known.is_known(key, now) or not holders:
                del self._alternatives[key]
                continue
            peer = self._rng.choice(holders)
            del alternatives[peer]
            found.setdefault(peer, []).append(key)
        return found

    def broken_promises(
        self, connected: Container[PeerId], known: MessageIndex, now: float
    ) -> list[PeerId]:
        """Return the peers whose promise expired unfulfilled. Promises of peers that are
        disconnected or not being read are void."""
        found = []
        for peer, (key, deadline) in list(self._promises.items()):
            if known.is_known(key, now) or peer not in connected:
                del self._promises[peer]
            elif now >= deadline:
                del self._promises[peer]
                if not self._is_read_behind(peer, now):
                    found.append(peer)
        return found

    def expire(self, now: float) -> None:
        """Forget requests that may be repeated."""
        for key, at in list(self._requested_at.items()):
            if now - at < RETRY_S:
                return
            del self._requested_at[key]

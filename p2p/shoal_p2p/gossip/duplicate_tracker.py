"""Decides which peer is charged for a wasted message: the one that could have known. Pure.

A forwarder knows what it has already sent to this node, and what it could have checked before
forwarding. It does not know what other peers have sent: a first copy from each peer is normal in a
mesh, whatever the verdict on that message was. An author knows what it has signed: one batch in two
pubsub messages is its own fault, whichever peers forward them.

`FrameCache` keeps messages of the last heartbeats, for IHAVE and for peers that missed them. A
parsed message keeps the whole RPC alive in which it arrived, so a small message in a megabyte of
padding would hold a megabyte. The cache therefore holds encoded frames, which the peers' queues
share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal_base.bounded import MANY, QUEUE_BYTES, BoundedDict
from shoal_p2p.gossip.interface import OVERLOAD
from shoal_p2p.reputation.scoring import is_mild, is_seen_by_forwarder
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict

COPY_UNITS = 1.0
JUDGED_UNITS = 10.0
"""Validating costs about ten times as much as dropping a copy."""
OVER_QUOTA_UNITS = 20.0
"""An author that exceeds its quota does so knowingly: the outbox of an honest node stays below
it."""
SECOND_MESSAGE_UNITS = 5.0
"""A batch under another sequence number. After a power cut an honest publisher sends again, at its
usual pace, whatever it cannot confirm as sent; that stays within a peer's waste allowance."""

_MAX_CONTENTS = 4 * MANY
_MAX_KEYS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """Units that one message wasted, by the peer that is charged."""

    forwarder_units: float = 0.0
    author_units: float = 0.0
    """Charged to the author, if it is not the forwarder or signed the batch twice."""


_NOTHING = Waste()


@dataclass(slots=True, eq=False)
class _Copies:
    """The peers that sent one message. A tuple saves memory: there is one for each message."""

    until: float
    senders: tuple[PeerId, ...] = ()
    is_seen: bool = False
    """True once the message needs no further validation."""


@dataclass(slots=True, eq=False)
class _Content:
    """One batch signed by an author: the messages that carried it, and their senders."""

    keys: tuple[bytes, ...]
    senders: tuple[PeerId, ...]


class DuplicateTracker:
    """Remembers for a limited time which peers have sent which message."""

    def __init__(self, *, ttl_s: float, max_ids: int) -> None:
        self._ttl_s = ttl_s
        self._copies: BoundedDict[bytes, _Copies] = BoundedDict(max_ids)
        """Copies by message key, the oldest first."""
        self._contents: BoundedDict[bytes, _Content] = BoundedDict(_MAX_CONTENTS)

    def __len__(self) -> int:
        return len(self._copies)

    def has_seen(self, key: bytes, now: float) -> bool:
        """Return whether a message was marked as seen within the time to live."""
        copies = self._copies.get(key)
        return copies is not None and copies.is_seen and copies.until > now

    def mark_seen(self, key: bytes, now: float) -> None:
        """Record that a message needs no further validation."""
        copies = self._get_or_create(key, now)
        copies.is_seen, copies.until = True, now + self._ttl_s
        self._copies[key] = copies  # the newest

    def on_copy(self, key: bytes, sender: PeerId, now: float) -> float:
        """Record that a peer has sent a message, and return the units wasted: 0 unless the peer
        repeats itself."""
        copies = self._get_or_create(key, now)
        if sender in copies.senders:
            return COPY_UNITS
        copies.senders += (sender,)
        return 0.0

    def _get_or_create(self, key: bytes, now: float) -> _Copies:
        copies = self._copies.get(key)
        if copies is None or copies.until <= now:
            self._forget(now)
            copies = self._copies[key] = _Copies(until=now + self._ttl_s)
        return copies

    def on_judged(
        self,
        judged: Verdict,
        *,
        key: bytes,
        content: Callable[[], bytes],
        author: PeerId,
        forwarder: PeerId,
    ) -> Waste:
        """Return what a message with a verdict wasted. `content` returns a digest of author and
        data."""
        if judged.outcome is Outcome.ACCEPT or judged.reason is Reason.DUPLICATE:
            return self._on_valid(key, content(), forwarder)
        if judged.reason in _NOT_SENDERS_FAULT:
            return _NOTHING
        own = author == forwarder
        if judged.outcome is Outcome.REJECT:
            if is_mild(judged):
                return Waste(forwarder_units=COPY_UNITS if own else 0.0)
            answers = own or is_seen_by_forwarder(judged)
            return Waste(forwarder_units=JUDGED_UNITS if answers else 0.0)
        # Ignored because of this node's clock, version or quota count, which other peers do not
        # know.
        if not own:
            return _NOTHING
        return Waste(
            forwarder_units=OVER_QUOTA_UNITS if judged.reason is Reason.OVER_QUOTA else COPY_UNITS
        )

    def _on_valid(self, key: bytes, content: bytes, forwarder: PeerId) -> Waste:
        """Record a valid batch: a first delivery, a repetition, or the same batch in a second
        message."""
        known = self._contents.get(content)
        if known is None:
            # A duplicate without a known message was fetched before gossip delivered it.
            self._contents.put(content, _Content((key,), (forwarder,)))
            return _NOTHING
        repeats, signed_again = forwarder in known.senders, key not in known.keys
        if not repeats:
            known.senders += (forwarder,)
        if signed_again and len(known.keys) < _MAX_KEYS:
            known.keys += (key,)
        return Waste(
            forwarder_units=JUDGED_UNITS if repeats and not signed_again else 0.0,
            author_units=SECOND_MESSAGE_UNITS if signed_again else 0.0,
        )

    def _forget(self, now: float) -> None:
        while self._copies:
            oldest = next(iter(self._copies))
            if self._copies[oldest].until > now:
                return
            del self._copies[oldest]


_NOT_SENDERS_FAULT = OVERLOAD | {Reason.LEFT_TOPIC}


GOSSIP_HEARTBEATS = 3
"""Heartbeats for which a message is advertised (gossipsub's mcache_gossip)."""
CACHE_HEARTBEATS = 5
"""Heartbeats for which a message can be requested (gossipsub's mcache_len)."""


class _Cached(NamedTuple):
    frame: Any
    topic: str
    num_bytes: int


class FrameCache:
    """Frames by message id, limited in bytes; the oldest are evicted first."""

    def __init__(self, *, max_bytes: int = QUEUE_BYTES) -> None:
        self._frames: dict[bytes, _Cached] = {}
        self._heartbeats: deque[list[bytes]] = deque([[]])
        """Message ids by the heartbeat of their arrival, the newest first."""
        self._max_bytes = max_bytes
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def __contains__(self, key: object) -> bool:
        return key in self._frames

    def put(self, key: bytes, topic: str, frame: Any, num_bytes: int) -> None:
        """Add the frame of a message, unless it is cached already."""
        if key in self._frames:
            return
        self._frames[key] = _Cached(frame, topic, num_bytes)
        self.num_bytes += num_bytes
        self._heartbeats[0].append(key)
        while self.num_bytes > self._max_bytes and len(self._frames) > 1:
            self._drop(next(iter(self._frames)))

    def get(self, key: bytes) -> Any:
        """Return the frame of a message; None if it is no longer cached."""
        cached = self._frames.get(key)
        return None if cached is None else cached.frame

    def window(self) -> dict[str, list[bytes]]:
        """Return the ids to advertise by topic, the oldest first."""
        found: dict[str, list[bytes]] = {}
        for beat in list(self._heartbeats)[GOSSIP_HEARTBEATS - 1 :: -1]:
            for key in beat:
                if (cached := self._frames.get(key)) is not None:
                    found.setdefault(cached.topic, []).append(key)
        return found

    def shift(self) -> None:
        """Drop the messages of the oldest heartbeat."""
        if len(self._heartbeats) == CACHE_HEARTBEATS:
            for key in self._heartbeats.pop():
                self._drop(key)
        self._heartbeats.appendleft([])

    def _drop(self, key: bytes) -> None:
        cached = self._frames.pop(key, None)
        if cached is not None:
            self.num_bytes -= cached.num_bytes

"""Decides which peer pays for a wasted message: the one that could have known. Pure.

A forwarder knows what it has sent to us before, and what it could have checked before it forwarded.
It does not know what others have sent us: the first copy of a message from each peer is what a mesh
is made of, whatever has become of that message here.  An author knows what it has signed: one batch
in two messages of pubsub is its own doing, through whomever the two come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal_base.bounded import MANY, BoundedDict
from shoal_p2p.gossip.interface import OVERLOAD
from shoal_p2p.reputation.scoring import is_mild, is_seen_by_forwarder
from shoal_wire.types import PeerId
from shoal_wire.verdict import Outcome, Reason, Verdict

COPY = 1.0
JUDGED = 10.0
"""Judging costs some ten times what dropping a copy does."""
OVER_QUOTA = 20.0
"""A quota is broken knowingly by who signs: the outbox keeps under it."""
SECOND_MESSAGE = 5.0
"""A batch under another number of pubsub. A publisher that comes back after a power cut sends
again, at its pace, what it does not know to be sent: that stays below what a peer may waste."""

_MAX_CONTENTS = 4 * MANY
_MAX_KEYS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """Units that one message wasted, by who answers for them."""

    of_forwarder: float = 0.0
    of_author: float = 0.0
    """The author's part, where the author is not the forwarder or signed the message twice."""


_NOTHING = Waste()


@dataclass(slots=True, eq=False)
class _Copies:
    """The peers that sent one message; a tuple, since there are as many as messages."""

    until: float
    senders: tuple[PeerId, ...] = ()
    is_seen: bool = False
    """True once the message needs no more judging."""


@dataclass(slots=True, eq=False)
class _Content:
    """One batch that an author signed: the messages that carried it, and who sent them."""

    keys: tuple[bytes, ...]
    senders: tuple[PeerId, ...]


class DuplicateTracker:
    """Remembers for a while which messages came, and who has sent each."""

    def __init__(self, *, ttl_s: float, max_ids: int) -> None:
        self._ttl_s = ttl_s
        self._copies: BoundedDict[bytes, _Copies] = BoundedDict(max_ids)
        """Copies by message key, the oldest first."""
        self._contents: BoundedDict[bytes, _Content] = BoundedDict(_MAX_CONTENTS)

    def __len__(self) -> int:
        return len(self._copies)

    def has_seen(self, key: bytes, now: float) -> bool:
        """Return whether a message was seen within the time to live."""
        copies = self._copies.get(key)
        return copies is not None and copies.is_seen and copies.until > now

    def see(self, key: bytes, now: float) -> None:
        """Note that a message needs no judging any more."""
        copies = self._fresh(key, now)
        copies.is_seen, copies.until = True, now + self._ttl_s
        self._copies[key] = copies  # the newest

    def copied(self, key: bytes, sender: PeerId, now: float) -> float:
        """Note that a peer has sent a message; return what that wasted where it is known already:
        nothing, unless the peer repeats itself."""
        copies = self._fresh(key, now)
        if sender in copies.senders:
            return COPY
        copies.senders += (sender,)
        return 0.0

    def _fresh(self, key: bytes, now: float) -> _Copies:
        copies = self._copies.get(key)
        if copies is None or copies.until <= now:
            self._forget(now)
            copies = self._copies[key] = _Copies(until=now + self._ttl_s)
        return copies

    def judged(
        self,
        judged: Verdict,
        *,
        key: bytes,
        content: Callable[[], bytes],
        author: PeerId,
        forwarder: PeerId,
    ) -> Waste:
        """Return what a judged message wasted; `content` makes a digest of author and data."""
        if judged.outcome is Outcome.ACCEPT or judged.reason is Reason.DUPLICATE:
            return self._carried(key, content(), forwarder)
        if judged.reason in _NOT_THEIRS:
            return _NOTHING
        own = author == forwarder
        if judged.outcome is Outcome.REJECT:
            if is_mild(judged):
                return Waste(of_forwarder=COPY if own else 0.0)
            answers = own or is_seen_by_forwarder(judged)
            return Waste(of_forwarder=JUDGED if answers else 0.0)
        # Ignored: by our clock, our version or our count of its quota, none of which others know.
        if not own:
            return _NOTHING
        return Waste(of_forwarder=OVER_QUOTA if judged.reason is Reason.OVER_QUOTA else COPY)

    def _carried(self, key: bytes, content: bytes, forwarder: PeerId) -> Waste:
        """A valid batch has come: for the first time, once more, or in a second message."""
        known = self._contents.get(content)
        if known is None:
            # A batch that is a duplicate all the same was fetched before it was heard of.
            self._contents.put(content, _Content((key,), (forwarder,)))
            return _NOTHING
        repeats, signed_again = forwarder in known.senders, key not in known.keys
        if not repeats:
            known.senders += (forwarder,)
        if signed_again and len(known.keys) < _MAX_KEYS:
            known.keys += (key,)
        return Waste(
            of_forwarder=JUDGED if repeats and not signed_again else 0.0,
            of_author=SECOND_MESSAGE if signed_again else 0.0,
        )

    def _forget(self, now: float) -> None:
        while self._copies:
            oldest = next(iter(self._copies))
            if self._copies[oldest].until > now:
                return
            del self._copies[oldest]


_NOT_THEIRS = OVERLOAD | {Reason.LEFT_TOPIC}

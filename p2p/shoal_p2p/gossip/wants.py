"""What was offered to us and asked for: of whom, when, and what has not come. Pure.

A message is asked of one peer a second. Who else offered it is remembered, for an offer is made
once: a busy validator drops what it has no time for, and who was asked may never have had it. Who
offers and does not send when it is asked at once breaks a promise; sending is all that keeps it,
whatever becomes of the message here. Of whom we leave unread for a while nothing is known: the
message may stand in what is not read, and the offer may have been old when it was.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from shoal_base.bounded import BoundedDict

Peer = TypeVar("Peer", bound=Hashable)

_ASK_AGAIN_S = 1.0
_ASKED_OF_ALL = 16
"""Times the ids of a kind: peers offer as many, each."""
_PROMISE_S = 10.0
"""An offered message that was asked for must come within so many seconds."""
_MAX_PROMISES = 4096
_BEHIND_S = 0.5
"""A peer left unread for so long has promised nothing; a second of reading makes up for one."""
_MAX_OTHERS = 4
"""Offers of one message remembered, whose is left to chance: names cost nothing."""
_OFFER_HOLDS_S = 3.0
"""Who offers a message has it for as long at the most."""


class KnownMessages(Protocol):
    """What is known of a message by its id."""

    def knows(self, key: bytes, now: float) -> bool:
        """Return whether it is seen or being judged."""

    def judges(self, key: bytes) -> bool:
        """Return whether it is being judged: our own trouble may yet make it unseen."""


class WantBook(Generic[Peer]):
    """Offers heard, questions asked and promises made; at most `max_ids` of a kind."""

    def __init__(self, *, max_ids: int, rng: random.Random) -> None:
        self._rng = rng
        self._asked = BoundedDict[bytes, float](_ASKED_OF_ALL * max_ids)
        self._others = BoundedDict[bytes, dict[Peer, float]](max_ids)
        self._promises: dict[Peer, tuple[bytes, float]] = {}
        """An id asked of each peer, and by when it must have come: one at a time."""

        self._unread = BoundedDict[Peer, tuple[float, float]](_MAX_PROMISES)
        """For how long each was left unread, and when that was."""

    def __len__(self) -> int:
        return len(self._asked) + len(self._others) + len(self._promises)

    def offered(
        self, peer: Peer, keys: Sequence[bytes], known: KnownMessages, now: float
    ) -> list[bytes]:
        """Return those to ask for."""
        wanted = []
        for key in keys:
            if known.judges(key) or (self._is_asked(key, now) and not known.knows(key, now)):
                self._remember(peer, key, now)
            elif not known.knows(key, now):
                wanted.append(key)
        return wanted

    def _is_asked(self, key: bytes, now: float) -> bool:
        return now - self._asked.get(key, -math.inf) < _ASK_AGAIN_S

    def _remember(self, peer: Peer, key: bytes, now: float) -> None:
        others = self._others.setdefault(key, {})
        others.setdefault(peer, now)
        if len(others) > _MAX_OTHERS:
            del others[self._rng.choice(list(others))]

    def asked(self, peer: Peer, keys: Sequence[bytes], now: float) -> None:
        """`peer` was asked for `keys` that it has just offered: it promised one, at random."""
        self.asked_late(keys, now)
        if (
            peer not in self._promises
            and len(self._promises) < _MAX_PROMISES
            and not self._is_behind(peer, now)
        ):
            self._promises[peer] = (self._rng.choice(keys), now + _PROMISE_S)

    def asked_late(self, keys: Sequence[bytes], now: float) -> None:
        """Somebody was asked for `keys`, and may have them no more."""
        for key in keys:
            self._asked[key] = now

    def left_unread(self, peer: Peer, seconds: float, now: float) -> None:
        """We did not read `peer` for so long, until `now`."""
        before, at = self._unread.get(peer, (0.0, now))
        idle = max(0.0, now - seconds - at)
        self._unread[peer] = (max(0.0, before - idle) + seconds, now)

    def _is_behind(self, peer: Peer, now: float) -> bool:
        unread, at = self._unread.get(peer, (0.0, now))
        return unread - (now - at) >= _BEHIND_S

    def came(self, peer: Peer, key: bytes) -> None:
        """`peer` has sent a message."""
        if self._promises.get(peer, (b"", 0.0))[0] == key:
            del self._promises[peer]

    def still_wanted(self, known: KnownMessages, now: float) -> dict[Peer, list[bytes]]:
        """Return whom to ask for what was dropped while it was judged, or has not come of whom it
        was asked: one who offered it meanwhile. Forgets that offer."""
        found: dict[Peer, list[bytes]] = {}
        for key, others in list(self._others.items()):
            if known.judges(key) or self._is_asked(key, now):
                continue
            holders = [peer for peer, at in others.items() if now - at <= _OFFER_HOLDS_S]
            if known.knows(key, now) or not holders:
                del self._others[key]
                continue
            peer = self._rng.choice(holders)
            del others[peer]
            found.setdefault(peer, []).append(key)
        return found

    def broken(self, connected: Container[Peer], known: KnownMessages, now: float) -> list[Peer]:
        """Return who offered what never came; a connection that ended, or is not read, owes
        nothing."""
        found = []
        for peer, (key, deadline) in list(self._promises.items()):
            if known.knows(key, now) or peer not in connected:
                del self._promises[peer]
            elif now >= deadline:
                del self._promises[peer]
                if not self._is_behind(peer, now):
                    found.append(peer)
        return found

    def forget(self, now: float) -> None:
        """Forget what may be asked for again."""
        for key, at in list(self._asked.items()):
            if now - at < _ASK_AGAIN_S:
                return
            del self._asked[key]

"""Measures the delivery lag of valid messages by the clocks of their authors. Pure.

    arrival (our clock) − sending (the author's clock) = delay + clock difference
    minimum for an author ─▶ its base             later value − base ─▶ lag

Clocks may differ by any amount: only the growth over an author's own minimum counts, as in LEDBAT
(RFC 6817). The lag is the median over authors, so a single author cannot change it by lying about
its clock. A message that waits for its verdict already counts; otherwise a node would learn that it
lags only after it has caught up.
"""

from __future__ import annotations

import math
from statistics import median
from typing import NamedTuple

from shoal_base.bounded import MANY, BoundedDict
from shoal_wire.types import PeerId

_MIN_AUTHORS = 3
"""Minimum number of authors: with fewer, one of them could decide the median."""
_WINDOW_S = 20.0
"""Messages sent earlier than this say nothing about the present."""
_REPAIR_S = 2.0
"""A dropped message is advertised with the next heartbeats and validated again."""
_DRIFT = 0.001
"""Rise of a base in seconds per second. A clock that was set back, or a longer network path, counts
as lag only for a while."""


class _AuthorLag(NamedTuple):
    base_s: float
    lag_s: float
    at: float
    """Time when the latest message arrived, or is expected."""


class DeliveryLag:
    """Tracks the base delay of each author and the lag of its latest message."""

    def __init__(self) -> None:
        self._authors: BoundedDict[PeerId, _AuthorLag] = BoundedDict()
        self._pending: BoundedDict[tuple[PeerId, float], None] = BoundedDict(MANY)
        """Messages that wait for a verdict."""

    def on_pending(self, author: PeerId, sent_s: float) -> None:
        """Record a message that waits for its verdict, until `on_judged`."""
        self._pending.put((author, sent_s), None)

    def on_judged(self, author: PeerId, sent_s: float) -> None:
        """Record that a message no longer waits for a verdict."""
        self._pending.pop((author, sent_s), None)

    def on_valid(self, author: PeerId, sent_s: float, now: float) -> None:
        """Record a valid message that its author sent at `sent_s` by its own clock, in seconds."""
        delay_s = now - sent_s
        known = self._authors.get(author)
        base_s = delay_s if known is None else known.base_s + _DRIFT * (now - known.at)
        base_s = min(base_s, delay_s)
        self._authors.put(author, _AuthorLag(base_s, delay_s - base_s, now))

    def on_dropped(self, author: PeerId, sent_s: float, now: float) -> None:
        """Record a message dropped under load, which arrives later if at all.

        Its author is unverified, so it counts only if a valid message of that author is known.
        """
        known = self._authors.get(author)
        if known is not None:
            lag_s = max(0.0, now - sent_s - known.base_s) + _REPAIR_S
            self._authors.put(author, _AuthorLag(known.base_s, lag_s, now + _REPAIR_S))

    def lag_s(self, now: float, sent_since: float = -math.inf) -> float | None:
        """Return the median lag, in seconds, of recent messages sent after `sent_since` by this
        node's clock; None if there are too few authors."""
        since = max(sent_since, now - _WINDOW_S)
        found = {
            author: one.lag_s
            for author, one in self._authors.items()
            if one.at - one.lag_s >= since
        }
        for author, sent_s in self._pending:
            known = self._authors.get(author)
            if known is not None and known.base_s + sent_s >= since:
                so_far = now - sent_s - known.base_s
                found[author] = max(so_far, found.get(author, 0.0))
        return median(found.values()) if len(found) >= _MIN_AUTHORS else None


def sent_s_from_seqno(number: int) -> float | None:
    """Return the sending time in seconds encoded in a sequence number, if that is a clock in
    nanoseconds, as in shoal and go-libp2p."""
    sent_s = number / 1e9
    return sent_s if _MIN_CLOCK_S <= sent_s < math.ldexp(1.0, 33) else None


_MIN_CLOCK_S = 1.0e9
"""September 2001: smaller sequence numbers count messages."""

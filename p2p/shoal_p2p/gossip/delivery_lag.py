"""Measures how late valid messages arrive here, by the clocks of their authors. Pure.

    arrival (our clock) − sending (the author's clock) = delay + what the two clocks differ by
    the least of an author's ─▶ its base          a later one − base ─▶ how late it is

Clocks may differ by any amount: only the growth over an author's own least counts, as in LEDBAT
(RFC 6817). The median over authors decides, so that an author that lies about its clock moves
nothing by itself. What waits for its verdict is late already: else a node would learn that it is
behind only when it has caught up.
"""

from __future__ import annotations

import math
from statistics import median
from typing import NamedTuple

from shoal_base.bounded import MANY, BoundedDict
from shoal_wire.types import PeerId

_LEAST_AUTHORS = 3
"""Least number of authors: with fewer one of them would decide alone."""
_LATELY_S = 20.0
"""A message sent before that says nothing about now."""
_REPAIR_S = 2.0
"""A dropped message is offered again with the next heartbeats, and judged anew."""
_DRIFT = 0.001
"""Seconds a second by which a base rises. A clock that was put back, or a way that became longer,
counts as late only for a while."""


class _Author(NamedTuple):
    base_s: float
    late_s: float
    at: float
    """Time when the latest message arrived, or is expected to."""


class DeliveryLag:
    """Remembers the base of each author, and how late its latest message was."""

    def __init__(self) -> None:
        self._authors: BoundedDict[PeerId, _Author] = BoundedDict()
        self._waiting: BoundedDict[tuple[PeerId, float], None] = BoundedDict(MANY)
        """Messages whose verdict is awaited."""

    def waits(self, author: PeerId, sent_s: float) -> None:
        """Note a message that is to be judged; `judged` ends that, whatever its verdict."""
        self._waiting.put((author, sent_s), None)

    def judged(self, author: PeerId, sent_s: float) -> None:
        """Note that a message waits no longer."""
        self._waiting.pop((author, sent_s), None)

    def arrived(self, author: PeerId, sent_s: float, now: float) -> None:
        """Note a valid message that its author sent at `sent_s` of its own clock, in seconds."""
        delay_s = now - sent_s
        known = self._authors.get(author)
        base_s = delay_s if known is None else known.base_s + _DRIFT * (now - known.at)
        base_s = min(base_s, delay_s)
        self._authors.put(author, _Author(base_s, delay_s - base_s, now))

    def dropped(self, author: PeerId, sent_s: float, now: float) -> None:
        """Note a message for which this node had no time: it will be here later, if at all.

        Nobody has vouched for its author, so it counts only where a valid one came before.
        """
        known = self._authors.get(author)
        if known is not None:
            late_s = max(0.0, now - sent_s - known.base_s) + _REPAIR_S
            self._authors.put(author, _Author(known.base_s, late_s, now + _REPAIR_S))

    def late_s(self, now: float, sent_since: float = -math.inf) -> float | None:
        """Return how many seconds late messages are that were sent lately, and since then by this
        node's clock; None where too few were heard to say."""
        since = max(sent_since, now - _LATELY_S)
        found = {
            author: one.late_s
            for author, one in self._authors.items()
            if one.at - one.late_s >= since
        }
        for author, sent_s in self._waiting:
            known = self._authors.get(author)
            if known is not None and known.base_s + sent_s >= since:
                so_far = now - sent_s - known.base_s
                found[author] = max(so_far, found.get(author, 0.0))
        return median(found.values()) if len(found) >= _LEAST_AUTHORS else None


def sent_s_of(number: int) -> float | None:
    """Return the second at which a message was sent, by its sequence number, where that is a clock
    in nanoseconds, as shoal's own and go's are."""
    sent_s = number / 1e9
    return sent_s if _SOME_DAY_S <= sent_s < math.ldexp(1.0, 33) else None


_SOME_DAY_S = 1.0e9
"""September 2001: a smaller number counts messages."""

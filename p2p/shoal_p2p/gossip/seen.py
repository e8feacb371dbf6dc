"""Which messages came lately. Pure."""

from __future__ import annotations

from collections import OrderedDict


class SeenCache:
    """Message ids of the last `ttl_s` seconds, at most `max_ids`; the oldest go first."""

    def __init__(self, *, ttl_s: float, max_ids: int) -> None:
        self._ttl_s = ttl_s
        self._max_ids = max_ids
        self._expiry: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._expiry)

    def has(self, key: bytes, now: float) -> bool:
        """True if `key` was added within the time to live."""
        expiry = self._expiry.get(key)
        return expiry is not None and expiry > now

    def add(self, key: bytes, now: float) -> None:
        """Add `key`, as the newest."""
        self._expiry[key] = now + self._ttl_s
        self._expiry.move_to_end(key)
        while self._expiry:
            oldest = next(iter(self._expiry))
            if self._expiry[oldest] > now and len(self._expiry) <= self._max_ids:
                return
            del self._expiry[oldest]

"""How fast streams may be opened: by a connection, and by all that come from where it does. Pure.

A stream takes whoever opens it a frame of some bytes, and whoever serves it a millisecond of its
loop.  Beyond the pace streams are accepted later, and nothing else is read meanwhile: TCP holds the
peer back.  Nobody is blamed.  Honest peers ask some twenty times a second at most: see the pace of
`p2p.fetch.asker`, fourteen.
"""

from __future__ import annotations

from p2p.fair.buckets import KeyedBuckets, Rate, TokenBucket

OF_CONNECTION = Rate(burst=400.0, per_second=100.0)
OF_SOURCE = Rate(burst=800.0, per_second=200.0)
"""Of all connections of a network, or through a relay: a new one brings no new burst."""
_MAX_SOURCES = 4096


class StreamPaces:
    """What has been opened from where; outlives the connections."""

    def __init__(self) -> None:
        self._of_source: KeyedBuckets[str] = KeyedBuckets(OF_SOURCE, max_keys=_MAX_SOURCES)

    def joined(self, source: str, now: float) -> StreamPace:
        """Return the pace of a connection that has begun; `source` as `seats.source_of` has it."""
        return StreamPace(source, self._of_source, now)


class StreamPace:
    """The pace of one connection."""

    def __init__(self, source: str, of_source: KeyedBuckets[str], now: float) -> None:
        self._source = source
        self._of_source = of_source
        self._own = TokenBucket(OF_CONNECTION, now)

    def opened(self, now: float) -> None:
        """Count a stream."""
        for bucket in self._buckets(now):
            bucket.owe(1.0, now)

    def wait_s(self, now: float) -> float:
        """Return for how long the next one should wait."""
        return max(bucket.wait_s(0.0, now) for bucket in self._buckets(now))

    def _buckets(self, now: float) -> tuple[TokenBucket, TokenBucket]:
        return self._own, self._of_source.of(self._source, now)

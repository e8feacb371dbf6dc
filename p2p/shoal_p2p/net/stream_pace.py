"""How fast streams may be opened: by a connection, and by all that come from where it does. Pure.

A stream takes whoever opens it a frame of some bytes, and whoever serves it a millisecond of its
loop.  Beyond the pace streams are accepted later, and nothing else is read meanwhile: TCP holds the
peer back.  Nobody is blamed.  Honest peers ask some twenty times a second at most: see the pace of
`shoal_p2p.fetch.asker`, fourteen.
"""

from __future__ import annotations

import itertools

from shoal_p2p.fair import Path
from shoal_p2p.fair.buckets import PathBuckets, Rate

OF_CONNECTION = Rate(burst=400.0, per_second=100.0)
OF_SOURCE = Rate(burst=800.0, per_second=200.0)
"""Rate limit shared by all connections from one network, or through one relay, so that another
connection does not grant another burst."""
_MAX_SOURCES = 4096


class StreamPaces:
    """What has been opened from where; outlives the connections."""

    def __init__(self) -> None:
        self._buckets = PathBuckets(OF_SOURCE, OF_CONNECTION, max_keys=_MAX_SOURCES)
        self._numbers = itertools.count()

    def joined(self, source: str, now: float) -> StreamPace:
        """Return the pace of a connection that has begun; `source` as `seats.source_of` has it."""
        path = (source, str(next(self._numbers)))
        self._buckets.of(path, now)
        return StreamPace(self._buckets, path)


class StreamPace:
    """The pace of one connection."""

    def __init__(self, buckets: PathBuckets, path: Path) -> None:
        self._buckets = buckets
        self._path = path

    def opened(self, now: float) -> None:
        """Count a stream."""
        self._buckets.of(self._path, now).owe(1.0, now)

    def wait_s(self, now: float) -> float:
        """Return for how long the next one should wait."""
        return self._buckets.of(self._path, now).wait_s(0.0, now)

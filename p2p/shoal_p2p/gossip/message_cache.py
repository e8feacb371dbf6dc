"""The messages of the last heartbeats: offered, and given to peers that missed them. Pure.

A parsed message keeps all of the RPC alive that it came in: a small one in a megabyte of padding is
a megabyte kept.  Here frames are kept, the same bytes that wait in the peers' queues.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from shoal_base.bounded import QUEUE_BYTES

OFFERED_BEATS = 3
"""Heartbeats for which a message is offered (gossipsub's mcache_gossip)."""
CACHED_BEATS = 5
"""Heartbeats for which a message can be asked for (gossipsub's mcache_len)."""


class _Cached(NamedTuple):
    frame: Any
    topic: str
    num_bytes: int


class FrameCache:
    """Frames by message id; the oldest go when there are too many bytes."""

    def __init__(self, *, max_bytes: int = QUEUE_BYTES) -> None:
        self._frames: dict[bytes, _Cached] = {}
        self._beats: deque[list[bytes]] = deque([[]])
        """Message ids by the heartbeat in which each came, the newest first."""
        self._max_bytes = max_bytes
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def __contains__(self, key: object) -> bool:
        return key in self._frames

    def keep(self, key: bytes, topic: str, frame: Any, num_bytes: int) -> None:
        """Keep the frame that sends a message, unless one is here."""
        if key in self._frames:
            return
        self._frames[key] = _Cached(frame, topic, num_bytes)
        self.num_bytes += num_bytes
        self._beats[0].append(key)
        while self.num_bytes > self._max_bytes and len(self._frames) > 1:
            self._drop(next(iter(self._frames)))

    def frame(self, key: bytes) -> Any:
        """Return the frame that sends a message; None if it is no longer here."""
        cached = self._frames.get(key)
        return None if cached is None else cached.frame

    def window(self) -> dict[str, list[bytes]]:
        """Return by topic the ids of the messages to offer, the oldest first."""
        found: dict[str, list[bytes]] = {}
        for beat in list(self._beats)[OFFERED_BEATS - 1 :: -1]:
            for key in beat:
                if (cached := self._frames.get(key)) is not None:
                    found.setdefault(cached.topic, []).append(key)
        return found

    def shift(self) -> None:
        """Forget the oldest heartbeat's messages."""
        if len(self._beats) == CACHED_BEATS:
            for key in self._beats.pop():
                self._drop(key)
        self._beats.appendleft([])

    def _drop(self, key: bytes) -> None:
        cached = self._frames.pop(key, None)
        if cached is not None:
            self.num_bytes -= cached.num_bytes

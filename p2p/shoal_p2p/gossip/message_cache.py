"""Caches messages of the last heartbeats, for IHAVE and for peers that missed them. Pure.

A parsed message keeps the whole RPC alive in which it arrived, so a small message in a megabyte of
padding would hold a megabyte. The cache therefore holds encoded frames, which the peers' queues
share.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from shoal_base.bounded import QUEUE_BYTES

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

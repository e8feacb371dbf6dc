"""The messages of the last heartbeats, bounded in bytes: offered, and given to who missed them.

py-libp2p's cache is bounded by time alone, and a parsed message keeps all of the RPC alive that it
came in: a small one in a megabyte of padding is a megabyte kept.  Here frames are kept, the same
bytes that wait in the peers' queues.
"""

from __future__ import annotations

from libp2p.pubsub.mcache import CacheEntry, MessageCache
from libp2p.pubsub.pb import rpc_pb2

from p2p.gossip.messages import message_id
from p2p.gossip.outbound import encode_frame

MAX_CACHE_BYTES = 32 * 1024 * 1024


class FrameCache(MessageCache):
    """Frames by message id; the oldest go when there are too many bytes."""

    def __init__(
        self, window_size: int, history_size: int, *, max_bytes: int = MAX_CACHE_BYTES
    ) -> None:
        super().__init__(window_size, history_size)
        self._frames: dict[bytes, bytes] = {}
        self._max_bytes = max_bytes
        self.num_bytes = 0

    def __contains__(self, key: object) -> bool:
        return key in self._frames

    def keep(self, message: rpc_pb2.Message) -> bytes:
        """Keep a message and return the frame that sends it."""
        key = message_id(message)
        frame = self._frames.get(key)
        if frame is not None:
            return frame
        frame = encode_frame(rpc_pb2.RPC(publish=[message]))
        self._frames[key] = frame
        self.num_bytes += len(frame)
        self.history[0].append(CacheEntry(key, message.topicIDs))
        while self.num_bytes > self._max_bytes and len(self._frames) > 1:
            self._drop(next(iter(self._frames)))
        return frame

    def put(self, msg: rpc_pb2.Message) -> None:
        """Keep a message."""
        self.keep(msg)

    def frame(self, key: bytes) -> bytes | None:
        """Return the frame that sends a message; None if it is no longer here."""
        return self._frames.get(key)

    def get(self, mid: bytes) -> rpc_pb2.Message | None:
        """Not used: `frame` is what there is."""
        raise NotImplementedError

    def window(self, topic: str) -> list[bytes]:
        """Return the ids of a topic's messages of the last heartbeats that are still here."""
        return [key for key in super().window(topic) if key in self._frames]

    def shift(self) -> None:
        """Forget the oldest heartbeat's messages."""
        for entry in self.history[-1]:
            self._drop(entry.mid)
        super().shift()

    def _drop(self, key: bytes) -> None:
        frame = self._frames.pop(key, None)
        if frame is not None:
            self.num_bytes -= len(frame)

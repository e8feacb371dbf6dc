"""The queue of RPC frames towards one peer: bounded in frames and bytes, control first.

py-libp2p's own holds 32 RPCs, uses two for each publish and drops the rest without a word.
"""

from __future__ import annotations

from collections import deque

import trio
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.rpc_queue import RpcQueue
from libp2p.utils.varint import encode_uvarint

MAX_RPC_BYTES = 1024 * 1024
"""What other libp2p implementations accept as one pubsub RPC."""


def encode_frame(rpc: rpc_pb2.RPC) -> bytes:
    """Return `rpc` as it travels: a varint length and the message."""
    body = rpc.SerializeToString()
    return encode_uvarint(len(body)) + body


class OutboundQueue(RpcQueue):
    """Full means: the frame is refused; the caller decides whether to wait."""

    def __init__(self, *, max_frames: int, max_bytes: int) -> None:
        super().__init__(max_size=max_frames, max_message_size=MAX_RPC_BYTES)
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._control: deque[bytes] = deque()
        self._data: deque[bytes] = deque()
        self._bytes = 0
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._control) + len(self._data)

    @property
    def has_data(self) -> bool:
        """True while messages, not only control, wait to be written."""
        return bool(self._data)

    def has_room(self, size: int) -> bool:
        """True if a data frame of `size` bytes would be taken."""
        return len(self._data) < self._max_frames and self._bytes + size <= self._max_bytes

    def push(self, rpc: rpc_pb2.RPC, priority: bool = False) -> bool:
        """Queue an RPC; subscriptions and control messages go before data."""
        return self.push_frame(encode_frame(rpc), control=priority or not rpc.publish)

    def push_frame(self, frame: bytes, *, control: bool = False) -> bool:
        """Queue an encoded frame; False if it was refused."""
        lane = self._control if control else self._data
        if (
            self.closed
            or len(lane) >= self._max_frames
            or self._bytes + len(frame) > self._max_bytes
            or len(frame) > MAX_RPC_BYTES + 4
        ):
            return False
        lane.append(frame)
        self._bytes += len(frame)
        self._notify_all()
        return True

    async def pop_frame(self) -> bytes | None:
        """Wait for the next frame; None once the queue is closed."""
        while not self.closed:
            if lane := self._control or self._data:
                frame = lane.popleft()
                self._bytes -= len(frame)
                self._notify_all()
                return frame
            await self._changed.wait()
        return None

    async def pop_frames(self, max_bytes: int) -> list[bytes]:
        """Wait for the next frame, and return with it what else waits, up to `max_bytes` together;
        none once the queue is closed."""
        first = await self.pop_frame()
        if first is None:
            return []
        frames, room = [first], max_bytes - len(first)
        while (lane := self._control or self._data) and len(lane[0]) <= room:
            frame = lane.popleft()
            self._bytes -= len(frame)
            room -= len(frame)
            frames.append(frame)
        return frames

    async def wait_for_room(self, size: int) -> bool:
        """Wait until `size` bytes fit; False if the queue closed. The caller sets a deadline."""
        while not self.closed:
            if self.has_room(size):
                return True
            await self._changed.wait()
        return False

    def close(self) -> None:
        """Wake the sender and every waiting publisher; nothing more is taken."""
        super().close()
        self._control.clear()
        self._data.clear()
        self._bytes = 0
        self._notify_all()

    def _notify_all(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

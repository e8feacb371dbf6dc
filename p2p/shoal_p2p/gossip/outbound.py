"""The queue of frames to one peer: limited in frames and bytes, control messages first.

A small frame that finds the queue empty is written at once, because waking the writer task for each
frame took a twentieth of the cost of a delivery.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median

import trio

from shoal_p2p.gossip.codec import MAX_RPC_BYTES

_PREFIX_BYTES = 4
"""Longest length prefix of an RPC of `MAX_RPC_BYTES`."""
_MAX_CONTROL_BYTES = MAX_RPC_BYTES
"""Control messages have their own capacity, so that a queue full of messages does not delay a
PRUNE."""
_WRITE_NOW_BYTES = 16 * 1024
"""Largest frame written at once. Writing a large one for each of eight peers would block the event
loop for half a millisecond."""


_UNRESPONSIVE_S = 1.0
"""A silent peer is presumed gone after its queue has waited for this long."""


def median_wait_s(waits: Sequence[tuple[float, float]]) -> float:
    """Return the median wait of the peers' queues, from pairs of seconds: how long a peer's oldest
    message has waited, and how long the peer has been silent.

    Peers that have been silent for as long as their queue has waited are probably gone. They do not
    count, unless that applies to all of them, until they are disconnected.
    """
    alive = [
        waited_s
        for waited_s, silent_s in waits
        if waited_s < _UNRESPONSIVE_S or silent_s < waited_s
    ]
    return median(alive or [waited_s for waited_s, _ in waits] or [0.0])


class _FrameQueue:
    """Frames of one kind, and their total length."""

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        self.frames: deque[bytes] = deque()
        self.since: deque[float] = deque()
        """Arrival time of each frame."""
        self.num_bytes = 0
        self._max_frames = max_frames
        self._max_bytes = max_bytes

    def has_capacity(self, size: int) -> bool:
        return len(self.frames) < self._max_frames and self.num_bytes + size <= self._max_bytes

    def append(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.since.append(trio.current_time())
        self.num_bytes += len(frame)

    def pop(self) -> bytes:
        frame = self.frames.popleft()
        self.since.popleft()
        self.num_bytes -= len(frame)
        return frame

    def clear(self) -> None:
        self.frames.clear()
        self.since.clear()
        self.num_bytes = 0


class OutboundQueue:
    """Frames to one peer. A full queue refuses a frame, and the caller decides whether to wait."""

    def __init__(
        self,
        *,
        max_frames: int,
        max_bytes: int,
        write_now: Callable[[bytes], bool] = lambda _frame: False,
    ) -> None:
        """`write_now` sends a frame if that does not block, and returns whether it did."""
        self._write_now = write_now
        self._is_idle = False
        """True while the writer waits for frames."""
        self._control = _FrameQueue(max_frames, _MAX_CONTROL_BYTES)
        self._data = _FrameQueue(max_frames, max_bytes)
        self._is_closed = False
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._control.frames) + len(self._data.frames)

    @property
    def num_data_bytes(self) -> int:
        """Bytes of messages that are queued."""
        return self._data.num_bytes

    def oldest_wait_s(self, now: float) -> float:
        """Return how long the oldest message has been queued, in seconds."""
        return now - self._data.since[0] if self._data.since else 0.0

    def has_capacity(self, size: int) -> bool:
        """Return whether a message frame of `size` bytes fits."""
        return self._data.has_capacity(size)

    def push(self, frame: bytes, *, control: bool = False) -> bool:
        """Queue an encoded frame. False if it was refused."""
        kind = self._control if control else self._data
        is_sendable = len(frame) <= MAX_RPC_BYTES + _PREFIX_BYTES
        if self._is_closed or not is_sendable or not kind.has_capacity(len(frame)):
            return False
        is_first = self._is_idle and not self._control.frames and not self._data.frames
        if is_first and len(frame) <= _WRITE_NOW_BYTES and self._write_now(frame):
            return True
        kind.append(frame)
        self._notify_all()
        return True

    async def pop(self, max_bytes: int) -> list[bytes]:
        """Wait for frames and return the next ones, up to `max_bytes` together; empty once the
        queue is closed."""
        control, data = self._control, self._data
        while not (self._is_closed or control.frames or data.frames):
            self._is_idle = True
            await self._changed.wait()
        self._is_idle = False
        frames: list[bytes] = []
        room = max_bytes
        while control.frames or data.frames:
            kind = control if control.frames else data
            if frames and len(kind.frames[0]) > room:
                break
            frames.append(kind.pop())
            room -= len(frames[-1])
        self._notify_all()
        return frames

    async def wait_for_capacity(self, size: int) -> None:
        """Wait until `size` bytes fit, or the queue is closed. The caller sets a deadline."""
        while not self._is_closed and not self.has_capacity(size):
            await self._changed.wait()

    def close(self) -> None:
        """Drop all frames, wake the writer and all waiting publishers, and refuse further
        frames."""
        self._is_closed = True
        self._control.clear()
        self._data.clear()
        self._notify_all()

    def _notify_all(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

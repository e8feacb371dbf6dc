"""The queue of frames towards one peer: bounded in frames and bytes, control first.

A small frame that finds nothing before it is written at once. Waking the writer for each was a
twentieth of what a delivery costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median

import trio

from shoal_p2p.gossip.codec import MAX_RPC_BYTES

_PREFIX_BYTES = 4
"""Longest length prefix, of an RPC of `MAX_RPC_BYTES`."""
_MAX_CONTROL_BYTES = MAX_RPC_BYTES
"""Control has room of its own, so that a full queue of messages does not keep a PRUNE back."""
_AT_ONCE_BYTES = 16 * 1024
"""Largest frame that is written at once: a large one for each of eight peers would be half a
millisecond in which nobody else runs."""


_WAITING_S = 1.0
"""A peer is waited for this long before its silence says that it is gone."""


def usual_wait_s(waits: Sequence[tuple[float, float]]) -> float:
    """Return the median of the peers' waits: of each how long its oldest message waits, and how
    long it has said nothing.

    Peers that have said nothing for as long as they are waited for are gone, most likely: they are
    left out, unless all of them are, until their connections are cut.
    """
    alive = [
        waited_s for waited_s, silent_s in waits if waited_s < _WAITING_S or silent_s < waited_s
    ]
    return median(alive or [waited_s for waited_s, _ in waits] or [0.0])


class _Lane:
    """Frames of one kind, and their bytes."""

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        self.frames: deque[bytes] = deque()
        self.since: deque[float] = deque()
        """Arrival time of each frame."""
        self.num_bytes = 0
        self._max_frames = max_frames
        self._max_bytes = max_bytes

    def has_room(self, size: int) -> bool:
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
    """Full means: the frame is refused; the caller decides whether to wait."""

    def __init__(
        self,
        *,
        max_frames: int,
        max_bytes: int,
        write_now: Callable[[bytes], bool] = lambda _frame: False,
    ) -> None:
        """`write_now` sends a frame if that needs no waiting; False says that it did not."""
        self._write_now = write_now
        self._is_idle = False
        """True while the writer has nothing to write."""
        self._control = _Lane(max_frames, _MAX_CONTROL_BYTES)
        self._data = _Lane(max_frames, max_bytes)
        self._is_closed = False
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._control.frames) + len(self._data.frames)

    @property
    def num_data_bytes(self) -> int:
        """Bytes of messages that wait to be written."""
        return self._data.num_bytes

    def waited_s(self, now: float) -> float:
        """Return for how long the oldest message has waited, in seconds."""
        return now - self._data.since[0] if self._data.since else 0.0

    def has_room(self, size: int) -> bool:
        """True if a message's frame of `size` bytes would be taken."""
        return self._data.has_room(size)

    def push(self, frame: bytes, *, control: bool = False) -> bool:
        """Queue an encoded frame; False if it was refused."""
        lane = self._control if control else self._data
        is_sendable = len(frame) <= MAX_RPC_BYTES + _PREFIX_BYTES
        if self._is_closed or not is_sendable or not lane.has_room(len(frame)):
            return False
        is_first = self._is_idle and not len(self)
        if is_first and len(frame) <= _AT_ONCE_BYTES and self._write_now(frame):
            return True
        lane.append(frame)
        self._notify_all()
        return True

    async def pop(self, max_bytes: int) -> list[bytes]:
        """Wait for the next frame, and return with it what else waits, up to `max_bytes` together;
        none once the queue is closed."""
        while not self._is_closed and not len(self):
            self._is_idle = True
            await self._changed.wait()
        self._is_idle = False
        frames: list[bytes] = []
        room = max_bytes
        while len(self):
            lane = self._control if self._control.frames else self._data
            if frames and len(lane.frames[0]) > room:
                break
            frames.append(lane.pop())
            room -= len(frames[-1])
        self._notify_all()
        return frames

    async def wait_for_room(self, size: int) -> None:
        """Wait until `size` bytes fit, or the queue is closed. The caller sets a deadline."""
        while not self._is_closed and not self.has_room(size):
            await self._changed.wait()

    def close(self) -> None:
        """Wake the writer and every waiting publisher; nothing more is taken."""
        self._is_closed = True
        self._control.clear()
        self._data.clear()
        self._notify_all()

    def _notify_all(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

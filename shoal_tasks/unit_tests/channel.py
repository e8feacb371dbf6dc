"""Frames of JSON over one end of a socket pair, with a limit on all received bytes."""

from __future__ import annotations

import json
import os
from typing import Any, Final

from shoal_base.bounded import PIECE_BYTES
from shoal_wire.errors import LocalError
from shoal_wire.framing import FrameDecoder, FrameError, encode_frame

MAX_FRAME_BYTES: Final = 16 << 20
MAX_RECEIVED_BYTES: Final = 128 << 20
"""Maximum bytes that a process accepts from another over its life."""


class ChannelClosed(BaseException):
    """The other process has ended, or sent something that is not a frame.

    A BaseException: a test's own ``except Exception`` must not mistake it for a failure of the
    code.
    """


class Channel:
    """One blocking end. The other process may be hostile: whatever it sends is only data."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decoder = FrameDecoder(max_bytes=MAX_FRAME_BYTES)
        self._frames: list[bytes] = []
        self._left = MAX_RECEIVED_BYTES
        self.is_closed = False
        """True if the other process has ended, or sent something that is not a frame."""

    def send(self, message: dict[str, Any]) -> None:
        """Write one frame. Raises `ChannelClosed`, or ValueError if it is too large."""
        body = json.dumps(message, separators=(",", ":")).encode("ascii")
        try:
            view = memoryview(encode_frame(body, max_bytes=MAX_FRAME_BYTES))
        except LocalError as error:
            raise ValueError(str(error)) from None
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            raise self._closed("ended its process") from None

    def receive(self) -> dict[str, Any]:
        """Return the next frame. Raises `ChannelClosed`."""
        while not self._frames:
            try:
                data = os.read(self._descriptor, min(PIECE_BYTES, self._left))
            except OSError:
                data = b""
            if not data:
                raise self._closed("ended its process" if self._left else "sent too much")
            self._left -= len(data)
            try:
                self._frames = self._decoder.feed(data)
            except FrameError:
                raise self._closed("sent no frame") from None
        try:
            message = json.loads(self._frames.pop(0))
        except (ValueError, RecursionError):
            raise self._closed("sent no frame") from None
        if not isinstance(message, dict):
            raise self._closed("sent no frame")
        return message

    def _closed(self, what: str) -> ChannelClosed:
        self.is_closed = True
        return ChannelClosed(f"the code {what}")

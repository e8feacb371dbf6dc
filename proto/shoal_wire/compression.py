"""zstd with a size limit that is checked before any allocation."""

from __future__ import annotations

import threading
from functools import lru_cache

import zstandard

_MIN_WINDOW_CAP = 1 << 20
"""Encoders choose windows by level, not by content: smaller caps would refuse honest frames."""

_LEVEL = 12
"""Batches are small: a high level costs well under a millisecond and makes every copy cheaper."""


class _Kept(threading.local):
    """Decompressors of one thread, by window limit: creating one takes four times as long as
    decompressing a small frame."""

    def __init__(self) -> None:
        self.decompressor = lru_cache(maxsize=4)(
            lambda window_cap: zstandard.ZstdDecompressor(max_window_size=window_cap)
        )


_KEPT = _Kept()


class CorruptFrameError(ValueError):
    """Not one whole zstd frame that declares its size."""


class OversizeFrameError(ValueError):
    """The frame declares more content, or a larger window, than the cap."""


def compress(data: bytes) -> bytes:
    """Return `data` as one zstd frame that declares its content size."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(data)


def declared_size(frame: bytes) -> int:
    """Return the content size that a frame declares; 0 if it declares none."""
    try:
        size = int(zstandard.get_frame_parameters(frame).content_size)
    except zstandard.ZstdError:
        return 0
    return 0 if size in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR) else size


def decompress(frame: bytes, *, max_bytes: int) -> bytes:
    """Return the content of one zstd frame of 1 to `max_bytes` bytes.

    A frame must declare its content size, so that a decompression bomb is refused before any
    allocation; the decoder then fails on any frame with more or less content than declared.

    Raises:
        OversizeFrameError: the declared size or window is over the cap.
        CorruptFrameError: anything else that is not exactly one frame.
    """
    try:
        parameters = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError as error:
        raise CorruptFrameError(str(error)) from None
    if parameters.content_size in (
        zstandard.CONTENTSIZE_UNKNOWN,
        zstandard.CONTENTSIZE_ERROR,
    ):
        raise CorruptFrameError("frame does not declare its content size")
    if parameters.content_size == 0:
        # The library returns at once on such a header, whatever follows it.
        raise CorruptFrameError("frame is empty")
    if parameters.content_size > max_bytes:
        raise OversizeFrameError(f"{parameters.content_size} bytes declared")
    window_cap = max(max_bytes, _MIN_WINDOW_CAP)
    if parameters.window_size > window_cap:
        raise OversizeFrameError(f"window of {parameters.window_size} bytes declared")
    try:
        content: bytes = _KEPT.decompressor(window_cap).decompress(
            frame, max_output_size=max_bytes, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise CorruptFrameError(str(error)) from None
    if len(content) != parameters.content_size:
        raise CorruptFrameError("content is not of the declared size")
    return content

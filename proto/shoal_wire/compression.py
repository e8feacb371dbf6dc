"""zstd with a cap that holds before anything is allocated."""

from __future__ import annotations

import zstandard

_LEVEL = 12
"""Batches are small: a higher level costs well under a millisecond and every copy is cheaper."""


class CorruptFrameError(ValueError):
    """Not one whole zstd frame that declares its size."""


class OversizeFrameError(ValueError):
    """The frame declares more than the cap."""


def compress(data: bytes) -> bytes:
    """Return `data` as one zstd frame that declares its content size."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(data)


def decompress(frame: bytes, *, max_bytes: int) -> bytes:
    """Return the content of one zstd frame of at most `max_bytes`.

    A frame must declare its content size, so that a bomb is refused before a byte of it is
    allocated; the decoder then fails on any frame that holds more or less than it declared.

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
    if parameters.content_size > max_bytes:
        raise OversizeFrameError(f"{parameters.content_size} bytes declared")
    try:
        content: bytes = zstandard.ZstdDecompressor(
            max_window_size=max(max_bytes, 1 << 20)
        ).decompress(frame, max_output_size=max_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptFrameError(str(error)) from None
    if len(content) != parameters.content_size:
        raise CorruptFrameError("content is not of the declared size")
    return content

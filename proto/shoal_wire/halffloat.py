"""Per-token log-probabilities as packed IEEE half floats, little endian."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

_MIN_HALF = -65504.0


def pack_halves(values: Sequence[float]) -> bytes:
    """Pack finite values as half floats; what a half cannot hold is clamped to its range."""
    clamped = [min(max(value, _MIN_HALF), -_MIN_HALF) for value in values]
    return struct.pack(f"<{len(clamped)}e", *clamped)


def unpack_halves(data: bytes) -> tuple[float, ...]:
    """Unpack half floats.

    Raises:
        ValueError: the length is odd, or a value is NaN or infinite.
    """
    if len(data) % 2:
        raise ValueError("odd length")
    values = struct.unpack(f"<{len(data) // 2}e", data)
    if not all(math.isfinite(value) for value in values):
        raise ValueError("not finite")
    return values

"""Per-token log-probabilities as packed IEEE half floats, little endian."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from operator import itemgetter

_MIN_HALF = -65504.0


def pack_halves(values: Sequence[float]) -> bytes:
    """Pack finite values as half floats; values out of range are clamped."""
    clamped = [min(max(value, _MIN_HALF), -_MIN_HALF) for value in values]
    return struct.pack(f"<{len(clamped)}e", *clamped)


def unpack_halves(data: bytes) -> tuple[float, ...]:
    """Unpack half floats.

    Raises:
        ValueError: the length is odd, or a value is NaN or infinite.
    """
    if len(data) % 2:
        raise ValueError("odd length")
    values: tuple[float, ...] = itemgetter(*struct.unpack(f"<{len(data) // 2}H", data), 0, 0)(
        _values()
    )[:-2]
    if not all(map(math.isfinite, values)):
        raise ValueError("not finite")
    return values


@functools.cache
def _values() -> tuple[float, ...]:
    """Return the value of every half float, to share: each use costs a reference, not an object."""
    return struct.unpack(f"<{1 << 16}e", struct.pack(f"<{1 << 16}H", *range(1 << 16)))

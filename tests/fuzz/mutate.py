"""Damages valid bytes, from a seed: most results still nearly parse."""

from __future__ import annotations

import random
from collections.abc import Sequence

_TROUBLE = (b"", b"\0", b"\xff", b"\x80", b"\x7f", b"\x80\x80\x80\x80\x04", b"\xff" * 9 + b"\x01")
_MAX_BYTES = 1 << 16


def mutate(rng: random.Random, originals: Sequence[bytes]) -> bytes:
    """Return one of `originals` with a few pieces replaced, repeated, moved, cut or spliced."""
    data = bytearray(rng.choice(originals))
    for _ in range(1 + int(rng.expovariate(0.7))):
        _DAMAGES[rng.randrange(len(_DAMAGES))](rng, data, originals)
        del data[_MAX_BYTES:]
    return bytes(data)


def _flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    data[at : at + rng.randrange(5)] = rng.randbytes(rng.randrange(5))


def _trouble(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    data[at : at + rng.randrange(3)] = rng.choice(_TROUBLE)


def _cut(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    if rng.random() < 0.5:
        del data[at:]
    else:
        del data[at : at + rng.randrange(1, 20)]


def _repeat(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = rng.randrange(len(data) + 1)
    piece = bytes(data[start : start + rng.randrange(1, 40)])
    data[start:start] = piece * rng.choice((1, 2, 3, 50))


def _splice(rng: random.Random, data: bytearray, originals: Sequence[bytes]) -> None:
    other = rng.choice(originals)
    at, start = rng.randrange(len(data) + 1), rng.randrange(len(other) + 1)
    data[at : at + rng.randrange(20)] = other[start : start + rng.randrange(1, 60)]


_DAMAGES = (_flip, _flip, _overwrite, _trouble, _cut, _repeat, _splice)

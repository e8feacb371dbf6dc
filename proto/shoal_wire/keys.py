"""Refuses ed25519 keys for which anyone can forge signatures.

Eight of the curve's points have small order. For such a key, one can construct a signature that
is valid for every message, or for one in a few, without a private key. Verifiers disagree on them
(RFC 8032 leaves it open; libsodium refuses them, OpenSSL and Go do not), and on encodings of a
point by a number beyond the field (RFC 8032, 5.1.3, step 1). Both are refused before any signature
check.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from shoal_wire.base58 import b58decode
from shoal_wire.limits import KEPT

KEY_BYTES: Final = 32
_PEER_ID_BYTES: Final = 2 + 4 + KEY_BYTES
_SIGN: Final = 1 << 255
_FIELD: Final = _SIGN - 19
_OF_ORDER_8: Final = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL: Final = frozenset({0, 1, _FIELD - 1, _OF_ORDER_8, _FIELD - _OF_ORDER_8})
"""The y of the eight points of small order. Either sign of x, part of the encoding, is weak."""


def is_weak_key(public_key: bytes) -> bool:
    """True if the bytes encode a point of small order, or use a number beyond the field."""
    y = int.from_bytes(public_key, "little") & ~_SIGN
    return y >= _FIELD or y in _SMALL


@lru_cache(maxsize=KEPT)
def names_weak_key(peer_id: str) -> bool:
    """True for the peer id of a weak key; False also for a text that is no ed25519 peer id."""
    try:
        raw = b58decode(peer_id)
    except ValueError:
        return False
    return len(raw) == _PEER_ID_BYTES and is_weak_key(raw[-KEY_BYTES:])

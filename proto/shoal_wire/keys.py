"""Refuses ed25519 keys in whose name anybody can sign.

Of the curve's points eight are of small order. A signature can be written under one of them that
holds for every message, or for one in a few, without any private key. Verifiers do not agree on
them (RFC 8032 leaves it open; libsodium refuses them, OpenSSL and Go do not), nor on numbers beyond
the field that encode a point (RFC 8032, 5.1.3, step 1). Here both are refused before a signature is
looked at.
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
"""The y of the eight points of small order; x, of which an encoding holds the sign, is either."""


def is_weak_key(public_key: bytes) -> bool:
    """True if these 32 bytes encode a point of small order, or any point by more than one field."""
    y = int.from_bytes(public_key, "little") & ~_SIGN
    return y >= _FIELD or y in _SMALL


@lru_cache(maxsize=KEPT)
def names_weak_key(peer_id: str) -> bool:
    """True for the peer id of such a key; not for what is no peer id of an ed25519 key at all."""
    try:
        raw = b58decode(peer_id)
    except ValueError:
        return False
    return len(raw) == _PEER_ID_BYTES and is_weak_key(raw[-KEY_BYTES:])

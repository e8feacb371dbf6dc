"""Verifies Ed25519 signatures with the faster of two libraries. Pure.

    small ─▶ libsodium ── valid ─────────▶ True
                 └─ not valid ─▶ OpenSSL ─▶ OpenSSL's result
    large ────────────────────▶ OpenSSL

OpenSSL decides which signatures are valid; both libraries recompute R and compare its bytes.
libsodium takes two thirds of the time, but refuses keys and points of small order that OpenSSL
accepts. Peers that disagree about validity would penalise each other for forwarding, so libsodium's
refusals are checked by OpenSSL.

Keys for which anyone can forge signatures are refused. Eight of the curve's points have small
order. For such a key, one can construct a signature that is valid for every message, or for one in
a few, without a private key. Verifiers disagree on them (RFC 8032 leaves it open; libsodium refuses
them, OpenSSL and Go do not), and on encodings of a point by a number beyond the field (RFC 8032,
5.1.3, step 1). Both are refused before any signature check.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

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


_SIGNATURE_BYTES = 2 * KEY_BYTES
_SMALL_BYTES = 16 * 1024
"""libsodium hashes more slowly: OpenSSL is faster for messages of twice this size and more."""


def signature_holds(signature: bytes, message: bytes, *, public_key: bytes) -> bool:
    """Return whether `signature` over `message` is valid for a raw 32-byte key."""
    if len(public_key) != KEY_BYTES or len(signature) != _SIGNATURE_BYTES:
        return False
    if len(message) <= _SMALL_BYTES and _sodium_holds(signature, message, public_key):
        return True
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _sodium_holds(signature: bytes, message: bytes, public_key: bytes) -> bool:
    try:
        crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        return False
    return True

"""Verifies Ed25519 signatures with the faster of two libraries. Pure.

    small ─▶ libsodium ── valid ─────────▶ True
                 └─ not valid ─▶ OpenSSL ─▶ OpenSSL's result
    large ────────────────────▶ OpenSSL

OpenSSL decides which signatures are valid; both libraries recompute R and compare its bytes.
libsodium takes two thirds of the time, but refuses keys and points of small order that OpenSSL
accepts. Peers that disagree about validity would penalise each other for forwarding, so libsodium's
refusals are checked by OpenSSL.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from shoal_wire.keys import KEY_BYTES

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

"""Ed25519 signatures of others, checked by the quicker of two libraries. Pure.

    small ─▶ libsodium ── it holds ─────────▶ True
                 └─ it does not ─▶ OpenSSL ─▶ what OpenSSL says
    large ───────────────────────▶ OpenSSL

What holds is what OpenSSL says, and both of them recompute R and compare its bytes. libsodium does
that in two thirds of the time, but refuses keys and points of small order that OpenSSL takes. Peers
that differ in what holds would blame each other for passing it on, so its refusal is asked about.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from shoal_wire.keys import KEY_BYTES

_SIGNATURE_BYTES = 2 * KEY_BYTES
_SMALL_BYTES = 16 * 1024
"""libsodium hashes more slowly: from twice as much on OpenSSL is the quicker one."""


def signature_holds(signature: bytes, message: bytes, *, public_key: bytes) -> bool:
    """Return whether `signature` over `message` is that of a raw 32-byte key, which may be none."""
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

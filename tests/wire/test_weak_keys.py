"""Keys under which anyone can forge a signature are refused: in envelopes, messages, peers."""

from __future__ import annotations

import hashlib
import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shoal_wire.envelope import EnvelopeError, open_envelope, seal
from shoal_wire.signatures import is_weak_key
from tests.wire.small_order import (
    FIELD,
    ZERO,
    encodings,
    small_order_encodings,
    small_order_points,
    times,
)
from tests.wire.test_signatures import openssl_holds

WEAK = small_order_encodings()


def forgery(key: bytes, message: bytes) -> bytes | None:
    """Return a signature that holds, made without a private key, if one of small order does."""
    return next((s for r in WEAK if openssl_holds(s := r + bytes(32), message, key)), None)


def test_there_are_eight_points_and_fourteen_encodings() -> None:
    points = small_order_points()
    assert len(points) == 8
    assert all(times(8, point) == ZERO for point in points)
    assert len(WEAK) == 14


def test_every_encoding_of_them_is_weak() -> None:
    assert all(map(is_weak_key, WEAK))


def test_every_encoding_by_more_than_one_field_is_weak() -> None:
    beyond = [raw for y in range(19) for raw in encodings(y) if is_beyond(raw)]
    assert len(beyond) == 2 * 19
    assert all(map(is_weak_key, beyond))


def is_beyond(raw: bytes) -> bool:
    return int.from_bytes(raw, "little") % 2**255 >= FIELD


def test_no_generated_key_is_weak() -> None:
    rng = random.Random(1)
    made = (Ed25519PrivateKey.from_private_bytes(rng.randbytes(32)) for _ in range(2_000))
    assert not any(is_weak_key(key.public_key().public_bytes_raw()) for key in made)


def test_the_library_accepts_forged_signatures_of_weak_keys() -> None:
    """Otherwise none of this would be needed: under which of them depends on the message."""
    messages = [hashlib.sha256(b"%d" % number).digest() for number in range(20)]
    fooled = [key for key in WEAK if any(forgery(key, message) for message in messages)]
    assert len(fooled) >= 8, [key.hex() for key in fooled]


@pytest.mark.parametrize("key", WEAK, ids=bytes.hex)
def test_no_envelope_is_theirs(key: bytes) -> None:
    for number in range(20):
        sign = lambda payload: forgery(key, payload) or bytes(64)  # noqa: E731
        raw = seal(b"%d" % number, public_key=key, sign=sign)
        with pytest.raises(EnvelopeError, match="weak_key"):
            open_envelope(raw)

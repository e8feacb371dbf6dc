"""What holds is what OpenSSL says, for every key and signature that the curve allows."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from shoal_p2p.net.identity import identity_from_seed
from shoal_wire.signatures import signature_holds
from tests.wire.small_order import (
    FIELD,
    ORDER,
    Point,
    added,
    at,
    small_order_encodings,
    small_order_points,
    times,
)


def openssl_holds(signature: bytes, message: bytes, public_key: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def sodium_holds(signature: bytes, message: bytes, public_key: bytes) -> bool:
    try:
        crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        return False
    return True


def encoded(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


BASE = at(4 * pow(5, -1, FIELD) % FIELD)


def odd_signatures(rng: random.Random) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Signature, message and key: parts of small order in either, and numbers past the order."""
    assert BASE is not None
    small, low = sorted(small_order_points()), small_order_encodings()
    secret, nonce = rng.randrange(1, ORDER), rng.randrange(1, ORDER)
    message = rng.randbytes(20)
    own, once = times(secret, BASE), times(nonce, BASE)
    points = [encoded(added(once, other)) for other in small]
    keys = [(secret, encoded(added(own, part))) for part in small] + [(0, key) for key in low]
    for factor, key in keys:
        for point in points:
            digest = hashlib.sha512(point + key + message).digest()
            answer = (nonce + int.from_bytes(digest, "little") * factor) % ORDER
            for number in (answer, answer + ORDER):
                yield point + number.to_bytes(32, "little"), message, key
        for point in low:
            yield point + bytes(32), message, key


def test_odd_keys_and_points_hold_as_with_openssl() -> None:
    differ = held = 0
    for signature, message, key in odd_signatures(random.Random(7)):
        truth = openssl_holds(signature, message, key)
        assert signature_holds(signature, message, public_key=key) == truth
        by_sodium = sodium_holds(signature, message, key)
        assert truth or not by_sodium
        held += truth
        differ += truth != by_sodium
    assert held
    assert differ, "libsodium refuses none of these, so its refusals need no check"


@given(
    seed=st.binary(min_size=32, max_size=32),
    message=st.binary(max_size=300),
    long=st.sampled_from([0, 0, 16 * 1024 - 1, 16 * 1024, 40_000]),
    flips=st.lists(st.integers(0, 95), max_size=2),
    cut=st.sampled_from([None, None, None, 0, 31, 63]),
)
def test_what_is_signed_holds_and_what_is_changed_does_not(
    seed: bytes, message: bytes, long: int, flips: list[int], cut: int | None
) -> None:
    signer = identity_from_seed(seed)
    message += bytes(long)
    whole = bytearray(signer.public_key_bytes + signer.sign(message))
    for place in flips:
        whole[place] ^= 1 + place
    key, signature = bytes(whole[:32])[:cut], bytes(whole[32:])[:cut]
    is_whole = cut is None and whole == signer.public_key_bytes + signer.sign(message)
    found = signature_holds(signature, message, public_key=key)
    assert found == is_whole == openssl_holds(signature, message, key)
    assert not signature_holds(signature, message + b"x", public_key=key)

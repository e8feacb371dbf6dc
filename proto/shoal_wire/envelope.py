"""Seal and open signed envelopes (libp2p RFC 0002) over their exact bytes.

The signature covers the payload's bytes, and those same bytes are verified: the payload is never
re-encoded. The envelope around it has exactly one valid encoding, the one that `seal` writes.
Otherwise a third party could write the same fields in other bytes, with a valid signature, and one
signed batch would have many digests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from google.protobuf.message import DecodeError

from shoal_wire.base58 import b58encode
from shoal_wire.errors import RemoteError
from shoal_wire.limits import BATCH_PAYLOAD_TYPE, ENVELOPE_DOMAIN, KEPT
from shoal_wire.signatures import KEY_BYTES, is_weak_key, signature_holds
from shoal_wire.types import PeerId
from shoal_wire.v1 import rollout_pb2
from shoal_wire.verdict import Reason

# libp2p PublicKey protobuf of an Ed25519 key: field 1 (type) = 1, field 2 (data) of 32 bytes.
_ED25519_PREFIX = b"\x08\x01\x12\x20"
_ED25519_KEY_BYTES = len(_ED25519_PREFIX) + KEY_BYTES

# Field numbers 1, 2, 3 and 5, each followed by its length.
_KEY, _TYPE, _PAYLOAD, _SIGNATURE = b"\x0a", b"\x12", b"\x1a", b"\x2a"


class EnvelopeError(RemoteError):
    """An invalid envelope; `reason` is its row in the verdict table."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedEnvelope:
    """An envelope with a valid signature."""

    signer: PeerId
    payload_type: bytes
    payload: bytes
    raw: bytes
    """The exact bytes that were opened."""


def public_key_message(public_key: bytes) -> bytes:
    """Return the libp2p PublicKey protobuf of a raw 32-byte Ed25519 public key."""
    return _ED25519_PREFIX + public_key


@lru_cache(maxsize=KEPT)
def peer_id_of(public_key: bytes) -> PeerId:
    """Return the peer id of a raw 32-byte Ed25519 key: its protobuf under the identity hash."""
    message = public_key_message(public_key)
    return PeerId(b58encode(b"\x00" + bytes([len(message)]) + message))


def seal(
    payload: bytes,
    *,
    public_key: bytes,
    sign: Callable[[bytes], bytes],
    payload_type: bytes = BATCH_PAYLOAD_TYPE,
) -> bytes:
    """Return the bytes of an envelope around `payload`, signed by `sign` (raw Ed25519)."""
    key, signature = public_key_message(public_key), sign(signed_bytes(payload_type, payload))
    return _encoded(key, payload_type, payload, signature)


def open_envelope(
    raw: bytes, *, payload_types: Collection[bytes] = (BATCH_PAYLOAD_TYPE,)
) -> SignedEnvelope:
    """Verify `raw` and return its signer and payload, cheap checks first.

    Raises:
        EnvelopeError: with the reason, for anything that is not a valid envelope of these types.
    """
    try:
        message = rollout_pb2.Envelope.FromString(raw)
    except DecodeError:
        raise EnvelopeError(Reason.MALFORMED_ENVELOPE) from None
    payload_type = message.payload_type
    if raw != _encoded(message.public_key, payload_type, message.payload, message.signature):
        raise EnvelopeError(Reason.NOT_CANONICAL)
    if payload_type not in payload_types:
        raise EnvelopeError(Reason.MALFORMED_ENVELOPE)
    key = message.public_key
    if len(key) != _ED25519_KEY_BYTES or not key.startswith(_ED25519_PREFIX):
        raise EnvelopeError(Reason.BAD_SIGNATURE)
    raw_key = key[len(_ED25519_PREFIX) :]
    if is_weak_key(raw_key):
        raise EnvelopeError(Reason.WEAK_KEY)
    signed = signed_bytes(payload_type, message.payload)
    if not signature_holds(message.signature, signed, public_key=raw_key):
        raise EnvelopeError(Reason.BAD_SIGNATURE)
    return SignedEnvelope(
        signer=peer_id_of(raw_key), payload_type=payload_type, payload=message.payload, raw=raw
    )


def _encoded(key: bytes, payload_type: bytes, payload: bytes, signature: bytes) -> bytes:
    """Return the one encoding: fields in ascending order, once, none empty, shortest varints."""
    parts = ((_KEY, key), (_TYPE, payload_type), (_PAYLOAD, payload), (_SIGNATURE, signature))
    return _framed([(tag, value) for tag, value in parts if value])


def signed_bytes(payload_type: bytes, payload: bytes) -> bytes:
    """Return what the signature covers (RFC 0002, *Signature Production and Verification*)."""
    return _framed([(b"", ENVELOPE_DOMAIN.encode()), (b"", payload_type), (b"", payload)])


def _framed(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return each tag, the value's length as a varint, and the value."""
    encoded = bytearray()
    for tag, value in fields:
        encoded += tag
        length = len(value)
        while length >= 0x80:
            encoded.append(length & 0x7F | 0x80)
            length >>= 7
        encoded.append(length)
        encoded += value
    return bytes(encoded)

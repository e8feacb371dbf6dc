"""The Noise handshake, restricted to strong ed25519 keys.

py-libp2p 0.8.1 also accepts RSA keys of any size, and private keys: parsing one of 60 KB, before
anything is proven, blocks the event loop for seconds. Here the key is checked as bytes before the
library parses it.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError
from libp2p.security.noise.exceptions import NoiseFailure
from libp2p.security.noise.patterns import PatternXX
from libp2p.security.noise.pb.noise_pb2 import NoiseHandshakePayload
from noise.connection import Keypair, NoiseConnection  # type: ignore[import-untyped]

from shoal_p2p.net.identity import public_key_of
from shoal_wire.signatures import is_weak_key


class ForeignKeyError(NoiseFailure):
    """The peer's key is not ed25519, or is a weak key for which anyone can sign."""


class StrictXX(PatternXX):
    """The library's XX pattern with a check of the peer's key."""

    def create_noise_state(self, prologue: bytes | None = None) -> NoiseConnection:
        """Return the state of a new handshake."""
        state = _StrictState.from_name(self.protocol_name)
        state.set_keypair_from_private_bytes(Keypair.STATIC, self.noise_static_key.to_bytes())
        if prologue is not None:
            state.set_prologue(prologue)
        return state


class _StrictState(NoiseConnection):
    def read_message(self, data: bytes) -> bytes:
        """Return the payload of a handshake message. Raises ForeignKeyError."""
        payload = bytes(super().read_message(data))
        if payload:
            _check(payload)
        return payload


def _check(payload: bytes) -> None:
    try:
        key = NoiseHandshakePayload.FromString(payload).identity_key
    except DecodeError:
        raise ForeignKeyError("the handshake payload is malformed") from None
    public_key = public_key_of(key)
    if public_key is None:
        raise ForeignKeyError("the peer's key is not ed25519")
    if is_weak_key(public_key):
        raise ForeignKeyError("the peer's key is weak: anyone can sign for it")

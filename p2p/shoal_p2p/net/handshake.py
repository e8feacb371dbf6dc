"""The handshake of noise, in which a peer says its key: ed25519 and nothing else, and a strong one.

py-libp2p 0.8.1 takes RSA keys too, whatever their size, and private ones: reading one of 60 KB,
before anything is proven, takes the loop for seconds. Here the bytes of a key are looked at before
the library parses them.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError
from libp2p.security.noise.exceptions import NoiseFailure
from libp2p.security.noise.patterns import PatternXX
from libp2p.security.noise.pb.noise_pb2 import NoiseHandshakePayload
from noise.connection import Keypair, NoiseConnection  # type: ignore[import-untyped]

from shoal_p2p.net.identity import public_key_of
from shoal_wire.keys import is_weak_key


class ForeignKeyError(NoiseFailure):
    """The peer's key is not ed25519, or one in whose name anybody can sign."""


class StrictXX(PatternXX):
    """The library's handshake, but for which keys it takes."""

    def create_noise_state(self, prologue: bytes | None = None) -> NoiseConnection:
        """Return the state of a handshake that is about to begin."""
        state = _StrictState.from_name(self.protocol_name)
        state.set_keypair_from_private_bytes(Keypair.STATIC, self.noise_static_key.to_bytes())
        if prologue is not None:
            state.set_prologue(prologue)
        return state


class _StrictState(NoiseConnection):
    def read_message(self, data: bytes) -> bytes:
        """Return what a message of the handshake says. Raises ForeignKeyError."""
        said = bytes(super().read_message(data))
        if said:
            _check(said)
        return said


def _check(said: bytes) -> None:
    try:
        key = NoiseHandshakePayload.FromString(said).identity_key
    except DecodeError:
        raise ForeignKeyError("what was said in the handshake does not parse") from None
    public_key = public_key_of(key)
    if public_key is None:
        raise ForeignKeyError("the peer's key is not ed25519")
    if is_weak_key(public_key):
        raise ForeignKeyError("anybody can sign in the name of the peer's key")

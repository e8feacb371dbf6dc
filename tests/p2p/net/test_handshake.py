"""A peer must present its own ed25519 key. Other keys are not even parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from Crypto.Util.asn1 import DerSequence
from libp2p.crypto.keys import KeyPair
from libp2p.crypto.pb import crypto_pb2
from libp2p.crypto.rsa import create_new_key_pair as create_rsa_key_pair
from libp2p.crypto.secp256k1 import create_new_key_pair as create_secp256k1_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_x25519_key_pair
from libp2p.io.exceptions import IncompleteReadError, IOException
from libp2p.io.trio import TrioTCPStream
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.security.noise.patterns import PatternXX
from libp2p.security.noise.pb.noise_pb2 import NoiseHandshakePayload

from shoal_p2p.net.handshake import ForeignKeyError, StrictXX
from tests.redteam.wire_peer import hello
from tests.support.network import port_of
from tests.support.nodes import fresh_identity, open_test_host
from tests.wire.small_order import small_order_encodings

RSA = create_rsa_key_pair(1024)
TARGET = ID.from_base58(fresh_identity().peer_id)


def key_message(kind: crypto_pb2.KeyType, data: bytes) -> bytes:
    return crypto_pb2.PublicKey(key_type=kind, data=data).SerializeToString()  # type: ignore[arg-type]


def huge_rsa() -> bytes:
    """A key that takes the library seconds to parse."""
    number = (1 << 100_000) + 1
    return key_message(crypto_pb2.RSA, DerSequence([number, number - 2]).encode())  # type: ignore[arg-type]


class _FixedPayload(PatternXX):
    """Sends a given payload in its handshake."""

    key: bytes = b""

    def make_handshake_payload(self, extensions: Any = None) -> Any:
        payload = super().make_handshake_payload(extensions)
        if self.key:
            made = NoiseHandshakePayload(identity_key=self.key, identity_sig=b"\1" + bytes(63))
            payload.serialize = made.SerializeToString
        return payload


def stranger(keys: KeyPair | None = None, key: bytes = b"") -> _FixedPayload:
    pair = keys or fresh_identity().key_pair
    made = _FixedPayload(ID.from_pubkey(pair.public_key), pair.private_key, _static())
    made.key = key
    return made


def _static() -> Any:
    return create_x25519_key_pair().private_key


def ours() -> StrictXX:
    pair = fresh_identity().key_pair
    return StrictXX(ID.from_pubkey(pair.public_key), pair.private_key, _static())


async def meet(other: PatternXX, *, we_dial: bool) -> ID:
    """Return who we take the other for."""
    one, two = map(TrioTCPStream, trio.testing.memory_stream_pair())
    mine, theirs = RawConnection(one, we_dial), RawConnection(two, not we_dial)
    found: list[ID] = []

    async def we() -> None:
        us = ours()
        made = us.handshake_outbound(mine, None) if we_dial else us.handshake_inbound(mine)
        found.append((await made).get_remote_peer())
        nursery.cancel_scope.cancel()

    async def they() -> None:
        await (
            other.handshake_inbound(theirs) if we_dial else other.handshake_outbound(theirs, None)
        )

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(we)
            nursery.start_soon(they)
    return found[0]


@pytest.mark.parametrize("we_dial", [True, False])
async def test_an_ed25519_key_is_accepted(we_dial: bool) -> None:
    other = stranger()
    assert await meet(other, we_dial=we_dial) == other.local_peer


FOREIGN: dict[str, Callable[[], _FixedPayload]] = {
    "rsa": lambda: stranger(RSA),
    "secp256k1": lambda: stranger(create_secp256k1_key_pair()),
    "huge rsa": lambda: stranger(key=huge_rsa()),
    "private rsa": lambda: stranger(key=key_message(crypto_pb2.RSA, RSA.private_key.to_bytes())),  # type: ignore[arg-type]
    "ed25519 in other bytes": lambda: stranger(
        key=key_message(crypto_pb2.Ed25519, fresh_identity().public_key_bytes) + b"\x18\x01"  # type: ignore[arg-type]
    ),
    **{
        f"small order {key.hex()}": lambda key=key: stranger(
            key=key_message(crypto_pb2.Ed25519, key)  # type: ignore[arg-type]
        )
        for key in small_order_encodings()
    },
}


@pytest.mark.parametrize("we_dial", [True, False])
@pytest.mark.parametrize("other", FOREIGN.values(), ids=FOREIGN)
async def test_other_keys_are_neither_accepted_nor_parsed(
    other: Callable[[], _FixedPayload], we_dial: bool
) -> None:
    with pytest.RaisesGroup(ForeignKeyError):
        await meet(other(), we_dial=we_dial)


async def test_a_host_refuses_peers_with_another_kind_of_key() -> None:
    async with open_test_host() as host:
        payload = [await _is_served(host, pair) for pair in (fresh_identity().key_pair, RSA)]
    assert payload == [True, False]


async def _is_served(host: Any, pair: KeyPair) -> bool:
    """Return whether the host negotiates a muxer with a peer that has these keys."""
    stream = TrioTCPStream(await trio.open_tcp_stream("127.0.0.1", port_of(host)))
    await stream.write(hello("/noise"))
    with trio.fail_after(10):
        greeting = b""
        while greeting.count(b"\n") < 2:
            greeting += await stream.read(64) or b""
        conn = RawConnection(stream, True)
        pattern = PatternXX(ID.from_pubkey(pair.public_key), pair.private_key, _static())
        session = await pattern.handshake_outbound(conn, None)
        try:
            await session.write(hello("/yamux/1.0.0"))
            return bool(await session.read(1))
        except (IOException, IncompleteReadError):
            return False
        finally:
            await stream.close()

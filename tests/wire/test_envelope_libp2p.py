"""libp2p's own code agrees with ours on peer ids, envelopes and signatures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libp2p.crypto.ed25519 import Ed25519PrivateKey as LibEd25519PrivateKey
from libp2p.crypto.ed25519 import Ed25519PublicKey as LibEd25519PublicKey
from libp2p.peer.envelope import Envelope as LibEnvelope
from libp2p.peer.envelope import make_unsigned, unmarshal_envelope
from libp2p.peer.id import ID

from shoal_wire.envelope import open_envelope, peer_id_of, public_key_message, seal, signed_bytes
from shoal_wire.limits import BATCH_PAYLOAD_TYPE, ENVELOPE_DOMAIN
from tests.wire import wire_samples as sample

keys = st.binary(min_size=32, max_size=32).map(sample.keypair)


@given(keys)
@settings(max_examples=30)
def test_peer_ids_are_equal(pair: tuple[bytes, object]) -> None:
    public_key, _ = pair
    theirs = LibEd25519PublicKey.from_bytes(public_key)
    assert peer_id_of(public_key) == ID.from_pubkey(theirs).to_base58()
    assert public_key_message(public_key) == theirs.serialize()


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_signed_bytes_are_equal(payload_type: bytes, payload: bytes) -> None:
    expected = make_unsigned(ENVELOPE_DOMAIN, payload_type, payload)
    assert signed_bytes(payload_type, payload) == expected


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_the_signed_bytes_are_equal_at_every_length_of_the_prefix(size: int) -> None:
    expected = make_unsigned(ENVELOPE_DOMAIN, BATCH_PAYLOAD_TYPE, bytes(size))
    assert signed_bytes(BATCH_PAYLOAD_TYPE, bytes(size)) == expected


@given(keys, st.binary(max_size=200))
@settings(max_examples=30)
def test_libp2p_opens_what_we_seal(pair: tuple[bytes, object], payload: bytes) -> None:
    public_key, key = pair
    raw = seal(payload, public_key=public_key, sign=key.sign)  # type: ignore[attr-defined]
    theirs = unmarshal_envelope(raw)
    theirs.validate(ENVELOPE_DOMAIN)
    assert theirs.raw_payload == payload
    assert theirs.payload_type == BATCH_PAYLOAD_TYPE
    assert ID.from_pubkey(theirs.public_key).to_base58() == peer_id_of(public_key)
    assert theirs.marshal_envelope() == raw


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200))
@settings(max_examples=30)
def test_we_open_what_libp2p_seals(seed: bytes, payload: bytes) -> None:
    key = LibEd25519PrivateKey.from_bytes(seed)
    signature = key.sign(make_unsigned(ENVELOPE_DOMAIN, BATCH_PAYLOAD_TYPE, payload))
    theirs = LibEnvelope(key.get_public_key(), BATCH_PAYLOAD_TYPE, payload, signature)
    opened = open_envelope(theirs.marshal_envelope())
    assert opened.payload == payload
    assert opened.signer == ID.from_pubkey(key.get_public_key()).to_base58()


def test_libp2p_refuses_our_envelope_under_its_own_domain() -> None:
    with pytest.raises(ValueError, match="signature"):
        unmarshal_envelope(sample.sealed()).validate("libp2p-peer-record")

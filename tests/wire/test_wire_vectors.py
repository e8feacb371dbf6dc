"""The golden vectors are what this code makes, and this code reads them as they say.

A change here breaks every other implementation: a vector is added, never altered.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from shoal_ipc.codec import decode_ipc
from shoal_wire import digests
from shoal_wire.codec import decode_batch, decompress
from shoal_wire.envelope import EnvelopeError, open_envelope
from shoal_wire.framing import FrameDecoder
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.manifest import decode_manifest
from shoal_wire.peers import decode_peer_list
from tests.wire import wire_golden as golden
from tests.wire import wire_samples as sample

VECTORS = Path(__file__).parent.parent / "vectors"


def recorded(name: str) -> Any:
    return json.loads((VECTORS / f"wire_{name}.json").read_text(encoding="utf-8"))


ENVELOPES = {vector["name"]: vector for vector in recorded("envelope")["valid"]}


def test_envelopes_are_made_as_recorded() -> None:
    payloads = {name: bytes.fromhex(vector["payload"]) for name, vector in ENVELOPES.items()}
    assert golden.envelopes(payloads) == list(ENVELOPES.values())


@pytest.mark.parametrize("name", ENVELOPES)
def test_a_recorded_payload_holds_the_bytes_of_its_batch(name: str) -> None:
    payload = bytes.fromhex(ENVELOPES[name]["payload"])
    assert decompress(payload, max_bytes=MAX_BATCH_BYTES) == golden.batch_bytes(name)
    assert decode_batch(payload, max_bytes=MAX_BATCH_BYTES) == golden.batches()[name]


@pytest.mark.parametrize("name", ENVELOPES)
def test_a_recorded_envelope_opens(name: str) -> None:
    vector = ENVELOPES[name]
    raw = bytes.fromhex(vector["envelope"])
    opened = open_envelope(raw)
    assert opened.signer == vector["peer_id"]
    assert opened.payload.hex() == vector["payload"]
    assert opened.raw == raw
    assert digests.batch_id(raw).hex() == vector["batch_id"]


def test_the_key_is_the_one_of_rfc_8032() -> None:
    assert sample.keypair(sample.SEED_1)[0] == sample.PUBLIC_1
    assert sample.keypair(sample.SEED_2)[0] == sample.PUBLIC_2


def test_recorded_rejects_are_made_as_recorded() -> None:
    valid = bytes.fromhex(ENVELOPES["plain"]["envelope"])
    assert golden.rejects(valid) == recorded("envelope")["rejected"]


@pytest.mark.parametrize("vector", recorded("envelope")["rejected"], ids=lambda v: v["name"])
def test_a_recorded_reject_does_not_open(vector: dict[str, str]) -> None:
    with pytest.raises(EnvelopeError) as raised:
        open_envelope(bytes.fromhex(vector["envelope"]))
    assert raised.value.reason == golden.NAMED_NOW.get(vector["reason"], vector["reason"])


def test_the_manifest_is_as_recorded() -> None:
    vector = recorded("manifest")
    assert golden.manifest_vector() == vector
    raw = bytes.fromhex(vector["manifest"])
    expected = bytes.fromhex(vector["digest"])
    assert decode_manifest(raw, expected_digest=expected) == golden.manifest()


def test_frames_are_as_recorded() -> None:
    vectors = recorded("frames")
    assert golden.frames() == vectors
    stream = b"".join(
        bytes.fromhex(vector["frame"])
        for vector in (vectors["peer_list"], vectors["empty_request"], *vectors["ipc"])
    )
    peers, empty, hello, reply = FrameDecoder().feed(stream)
    assert empty == b""
    (peer,) = decode_peer_list(peers)
    listed = vectors["peer_list"]["peers"][0]["addresses"]
    assert [f"{address}/p2p/{peer.peer_id}" for address in peer.addresses] == listed
    assert [str(decode_ipc(raw).request_id) for raw in (hello, reply)] == [
        vector["request_id"] for vector in vectors["ipc"]
    ]


def test_a_group_id_is_computed_as_documented() -> None:
    fields = [
        b"shoal-group-v1",
        b"sums",
        bytes(range(16)),
        (7).to_bytes(8, "big"),
        (3).to_bytes(8, "big"),
        hashlib.sha256(b"What is 40 + 2?").digest()[:16],
        *(b"42", b"stop", b"41", b"length"),
    ]
    joined = b"".join(len(field).to_bytes(8, "big") + field for field in fields)
    expected = hashlib.sha256(joined).digest()[:16].hex()
    assert ENVELOPES["plain"]["batch"]["groups"][0]["group_id"] == expected


def test_a_newer_minor_version_is_read_and_its_bytes_are_kept() -> None:
    vector = ENVELOPES["newer"]
    raw = bytes.fromhex(vector["envelope"])
    assert bytes.fromhex(vector["batch_bytes"]).endswith(b"\x80\x7d\x2a")
    assert open_envelope(raw).raw == raw
    assert vector["batch"]["sequence"] == "3"

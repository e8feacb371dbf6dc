"""Any bytes give a value or the stated error, whatever they are."""

from __future__ import annotations

import contextlib

from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal_ipc.codec import decode_ipc, encode_ipc
from shoal_ipc.framing import FrameDecoder, FrameError
from shoal_ipc.messages import Body, IpcFrame
from shoal_wire.codec import PayloadError, decode_batch
from shoal_wire.compression import compress
from shoal_wire.envelope import EnvelopeError, open_envelope
from shoal_wire.errors import ManifestError, RemoteError
from shoal_wire.manifest import decode_manifest
from shoal_wire.peers import PeerAddresses, decode_peer_list, encode_peer_list
from shoal_wire.rules import check_batch
from shoal_wire.v1 import swarm_pb2 as pb
from tests.wire import wire_golden as golden
from tests.wire import wire_samples as sample
from tests.wire.wire_strategies import BODIES

VALID_BATCHES = [golden.batch_bytes(name) for name in golden.batches()]
PEER = "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"
VALID_PEERS = encode_peer_list(
    [PeerAddresses(peer_id=PEER, addresses=("/ip4/192.0.2.1/tcp/1",))]  # type: ignore[arg-type]
)


@st.composite
def damaged(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """Valid bytes with a few of them replaced, inserted or removed: most still nearly parse."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, max(0, len(data) - 1)))
        removed = draw(st.integers(0, 3))
        data[position : position + removed] = draw(st.binary(max_size=3))
    return bytes(data)


def hostile(*originals: bytes) -> st.SearchStrategy[bytes]:
    return st.binary(max_size=200) | damaged(list(originals))


@given(hostile(sample.sealed()))
@settings(max_examples=200)
def test_open_envelope(raw: bytes) -> None:
    with contextlib.suppress(EnvelopeError):
        assert open_envelope(raw).raw == raw


@given(hostile(*(compress(batch) for batch in VALID_BATCHES)))
@settings(max_examples=200)
def test_decode_batch_of_any_payload(payload: bytes) -> None:
    with contextlib.suppress(PayloadError):
        decode_batch(payload, max_bytes=4096)


@given(hostile(*VALID_BATCHES))
@settings(max_examples=300)
def test_decode_batch_and_its_rules_of_any_content(content: bytes) -> None:
    try:
        batch = decode_batch(compress(content), max_bytes=100_000)
    except PayloadError:
        return
    # What decodes is safe to judge, whatever its numbers and texts are.
    check_batch(batch, sample.batch_rules(), now_ms=sample.NOW_MS)


@given(hostile(golden.manifest().raw))
@settings(max_examples=200)
def test_decode_manifest(raw: bytes) -> None:
    with contextlib.suppress(ManifestError):
        manifest = decode_manifest(raw)
        assert manifest.raw == raw
        assert manifest.shard_of("any peer") < manifest.rules.shard_count


@st.composite
def nearly_frames(draw: st.DrawFn) -> bytes:
    body: Body = draw(st.one_of(*BODIES.values()))
    return draw(damaged([encode_ipc(IpcFrame(request_id=1, body=body))]))


@given(st.binary(max_size=200) | nearly_frames())
@settings(max_examples=200)
@example(b"\x0b" * 200)  # groups nested deeper than protobuf follows
def test_decode_ipc(raw: bytes) -> None:
    with contextlib.suppress(FrameError):
        assert isinstance(decode_ipc(raw), IpcFrame)


@given(hostile(VALID_PEERS))
@settings(max_examples=200)
def test_decode_peer_list(raw: bytes) -> None:
    with contextlib.suppress(RemoteError):
        for peer in decode_peer_list(raw):
            assert peer.addresses
            told = {at for item in pb.PeerList.FromString(raw).peers for at in item.addresses}
            assert {f"{address}/p2p/{peer.peer_id}" for address in peer.addresses} <= told


@given(st.lists(st.binary(max_size=30), max_size=8))
@settings(max_examples=200)
def test_frame_decoder(pieces: list[bytes]) -> None:
    decoder = FrameDecoder(max_bytes=50)
    with contextlib.suppress(FrameError):
        for piece in pieces:
            assert all(len(frame) <= 50 for frame in decoder.feed(piece))

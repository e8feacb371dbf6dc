"""Every parser of bytes from peers or from disk: its inputs, and the exceptions that it may raise.

Any other exception is a finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from libp2p.pubsub.pb import rpc_pb2

from shoal_ipc import messages as m
from shoal_ipc.codec import decode_ipc, encode_ipc
from shoal_p2p.gossip.codec import check_num_parts, message_id, reject_reason, sign_message
from shoal_p2p.intake.validation import (
    Rejected,
    ValidationContext,
    open_announcement,
    open_message,
    open_payload,
)
from shoal_p2p.net.address import (
    decode_addresses,
    dialable,
    parse_peer_address,
    parse_peer_id,
    parse_transport,
)
from shoal_p2p.net.identify import _printable
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.net.streams import MalformedFrameError
from shoal_p2p.peers.peer_book import PeerBook
from shoal_p2p.reputation.reputation import Reputation
from shoal_p2p.reputation.scoring import Cause
from shoal_wire import judge
from shoal_wire.announcement import encode_announcement
from shoal_wire.codec import (
    CorruptFrameError,
    OversizeFrameError,
    PayloadError,
    compress,
    decode_batch,
    decompress,
    encode_batch,
)
from shoal_wire.envelope import EnvelopeError, open_envelope, peer_id_of, seal
from shoal_wire.errors import ManifestError, RemoteError
from shoal_wire.framing import FrameDecoder, FrameError, encode_frame
from shoal_wire.halffloat import unpack_halves
from shoal_wire.judge_messages import (
    Challenge,
    JudgeRefusal,
    JudgeRefusalReason,
    JudgeReply,
    RecordList,
    RecordQuery,
)
from shoal_wire.limits import (
    ANNOUNCEMENT_PAYLOAD_TYPE,
    BATCH_PAYLOAD_TYPE,
    MAX_SHARD_NUMBER,
    MAX_SHARDS_PER_PEER,
)
from shoal_wire.manifest import decode_manifest
from shoal_wire.peers import (
    PeerAddresses,
    decode_peer_list,
    decode_peer_query,
    encode_peer_list,
    encode_peer_query,
)
from shoal_wire.reach import (
    decode_reach_reply,
    decode_reach_request,
    encode_reach_reply,
    encode_reach_request,
)
from shoal_wire.rollout_codec import (
    RolloutProtocolError,
    decode_answer,
    decode_query,
    encode_answer,
    encode_query,
)
from shoal_wire.rules import check_batch
from shoal_wire.types import PeerId
from shoal_wire.v1 import swarm_pb2
from tests.wire import ipc_golden, request_golden, rollout_golden, wire_golden
from tests.wire import wire_samples as sample
from tests.wire.test_judge_protocol import ANSWER, RECORD

CORPUS = Path(__file__).parent / "corpus"
"""Inputs that were, or could have been, findings: one file each, `TARGET-anything.bin`."""

PEER = "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"
AUTHOR = identity_from_seed(bytes(32))
RAW_AUTHOR = b"\x00\x24\x08\x01\x12\x20" + AUTHOR.public_key_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One parser."""

    run: Callable[[bytes], object]
    allowed: tuple[type[Exception], ...]
    valid: Sequence[bytes]
    """Valid inputs that are then damaged."""


def _content() -> bytes:
    return sample.batch_message().SerializeToString()


def _envelope(raw: bytes) -> None:
    opened = open_envelope(raw, payload_types=_TYPES)
    assert opened.raw == raw
    assert opened.payload_type in _TYPES


def _batch(content: bytes) -> None:
    batch = decode_batch(compress(content), max_bytes=200_000)
    check_batch(batch, sample.batch_rules(), now_ms=sample.NOW_MS)


def _signed(payload: bytes) -> None:
    """Parse a batch with any content under a hostile author's valid signature."""
    context = ValidationContext(rules=sample.batch_rules(), me=AUTHOR.peer_id)
    raw = sample.sealed(payload)
    author = PeerId(PEER)
    envelope = open_message(raw, author=author, context=context)
    open_payload(envelope, author=author, context=context, now_ms=sample.NOW_MS)


def _announcement(payload: bytes) -> None:
    """Parse an announcement with any content under a valid signature."""
    context = ValidationContext(rules=sample.batch_rules(), me=AUTHOR.peer_id)
    public_key, key = sample.keypair()
    raw = seal(
        payload,
        public_key=public_key,
        sign=key.sign,
        payload_type=ANNOUNCEMENT_PAYLOAD_TYPE,
    )
    author = peer_id_of(public_key)
    envelope = open_message(raw, author=author, context=context)
    open_announcement(envelope, author=author, context=context, now_ms=sample.NOW_MS)


def _manifest(raw: bytes) -> None:
    manifest = decode_manifest(raw)
    assert manifest.raw == raw
    assert manifest.shard_of("any peer") < manifest.rules.shard_count


def _peer_list(raw: bytes) -> None:
    found = decode_peer_list(raw)  # first: its exceptions are the ones to check
    announced = {at for item in swarm_pb2.PeerList.FromString(raw).peers for at in item.addresses}
    for peer in found:
        assert peer.addresses
        assert {f"{address}/p2p/{peer.peer_id}" for address in peer.addresses} <= announced


def _peer_query(raw: bytes) -> None:
    shards = decode_peer_query(raw)
    assert len(set(shards)) == len(shards) <= MAX_SHARDS_PER_PEER
    assert all(0 <= shard < MAX_SHARD_NUMBER for shard in shards)


def _content_of(raw: bytes) -> None:
    assert 1 <= len(decompress(raw, max_bytes=100_000)) <= 100_000


def _again(
    decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]
) -> Callable[[bytes], None]:
    """Parse bytes, encode the result and parse it again: the result must be equal."""

    def run(raw: bytes) -> None:
        value = decode(raw)
        assert decode(encode(value)) == value

    return run


def _rpc(raw: bytes) -> None:
    rpc = rpc_pb2.RPC()
    rpc.ParseFromString(raw)
    check_num_parts(rpc, len(raw))
    for message in rpc.publish:
        message_id(message)
        reject_reason(message, 100_000)


def _frames(raw: bytes) -> None:
    decoder = FrameDecoder(max_bytes=4096)
    for start in range(0, len(raw), 7):
        for frame in decoder.feed(raw[start : start + 7]):
            assert len(frame) <= 4096
            decode_ipc(frame)


def _identify(raw: bytes) -> None:
    dialable(decode_addresses([raw, raw[1:]]))
    _printable(raw.decode("utf-8", "replace"))


def _text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda raw: parse(raw.decode("utf-8", "replace"))


def _reputation(raw: bytes) -> None:
    reputation = Reputation()
    reputation.restore(raw.decode("utf-8"), 0.0, wall_ms=1_000)
    json.loads(reputation.to_json(1.0, wall_ms=2_000))


def _saved_reputation() -> bytes:
    reputation = Reputation()
    reputation.board.charge(PeerId(PEER), Cause.SIGNED_HEAVY, 0.0)
    reputation.block(PeerId(PEER))
    return reputation.to_json(0.0, wall_ms=0).encode()


def _book() -> bytes:
    book = PeerBook()
    book.note_connected(
        PeerAddresses(peer_id=PeerId(PEER), addresses=("/ip4/192.0.2.1/tcp/1",)), now_ms=1
    )
    return book.to_json().encode()


def _rpcs() -> list[bytes]:
    message = sign_message(AUTHOR, RAW_AUTHOR, "/t", b"data", 7)
    control = rpc_pb2.ControlMessage(
        ihave=[rpc_pb2.ControlIHave(topicID="/t", messageIDs=[b"id" * 20])],
        iwant=[rpc_pb2.ControlIWant(messageIDs=[b"id" * 20])],
        graft=[rpc_pb2.ControlGraft(topicID="/t")],
        prune=[rpc_pb2.ControlPrune(topicID="/t", backoff=60)],
        idontwant=[rpc_pb2.ControlIDontWant(messageIDs=[b"id"])],
    )
    subscribe = rpc_pb2.RPC.SubOpts(subscribe=True, topicid="/t")
    return [
        rpc_pb2.RPC(publish=[message, message]).SerializeToString(),
        rpc_pb2.RPC(control=control, subscriptions=[subscribe]).SerializeToString(),
    ]


_TYPES = (BATCH_PAYLOAD_TYPE, ANNOUNCEMENT_PAYLOAD_TYPE)
_FRAMES = [encode_ipc(m.IpcFrame(request_id=1, body=body)) for body in ipc_golden.BODIES.values()]
_PEERS = encode_peer_list(
    [PeerAddresses(peer_id=PeerId(PEER), addresses=("/ip4/192.0.2.1/tcp/1",))]
)
_ADDRESS = f"/ip4/192.0.2.1/tcp/4001/p2p/{PEER}".encode()
_JUDGE_REPLIES: list[JudgeReply] = [
    RecordList(envelopes=(b"one", b"two")),
    JudgeRefusal(reason=JudgeRefusalReason.BUSY, retry_after_ms=9),
    Challenge(challenge_id=b"i" * 16, family="gcd", question="gcd?", answer_within_ms=9),
]
_BINARY_ADDRESS = b"\x04\xc0\x00\x02\x01\x06\x0f\xa1"


def _record(raw: bytes) -> None:
    """Parse a record with any content under a valid signature of its judge."""
    envelope = seal(
        raw,
        public_key=AUTHOR.public_key_bytes,
        sign=AUTHOR.sign,
        payload_type=judge.RECORD_PAYLOAD_TYPE,
    )
    record = judge.open_record(envelope, judge=AUTHOR.peer_id)
    judge.seal_record(record, public_key=AUTHOR.public_key_bytes, sign=AUTHOR.sign)


def _sealed_record(raw: bytes) -> None:
    assert judge.open_record(raw, judge=AUTHOR.peer_id) == RECORD, "a damaged one is believed"


_RECORD = judge.seal_record(RECORD, public_key=AUTHOR.public_key_bytes, sign=AUTHOR.sign)


TARGETS: dict[str, Target] = {
    "envelope": Target(
        run=_envelope,
        allowed=(EnvelopeError,),
        valid=[sample.sealed(), rollout_golden.sealed_announcement()],
    ),
    "batch": Target(
        run=_batch,
        allowed=(PayloadError,),
        valid=[*map(wire_golden.batch_bytes, wire_golden.batches())],
    ),
    "signed-payload": Target(
        run=_signed, allowed=(Rejected,), valid=[encode_batch(sample.batch())]
    ),
    "compression": Target(
        run=_content_of,
        allowed=(CorruptFrameError, OversizeFrameError),
        valid=[compress(_content()), encode_batch(sample.batch())],
    ),
    "manifest": Target(run=_manifest, allowed=(ManifestError,), valid=[wire_golden.manifest().raw]),
    "ipc": Target(run=decode_ipc, allowed=(FrameError,), valid=_FRAMES),
    "ipc-frames": Target(
        run=_frames,
        allowed=(FrameError,),
        valid=[encode_frame(a) + encode_frame(b) for a, b in pairwise(_FRAMES)],
    ),
    "peer-list": Target(run=_peer_list, allowed=(RemoteError,), valid=[_PEERS]),
    "peer-query": Target(
        run=_peer_query, allowed=(RemoteError,), valid=[encode_peer_query([0, 5])]
    ),
    "reach-request": Target(
        run=_again(decode_reach_request, encode_reach_request),
        allowed=(RemoteError,),
        valid=[encode_reach_request([4001, 5])],
    ),
    "reach-reply": Target(
        run=_again(decode_reach_reply, encode_reach_reply),
        allowed=(RemoteError,),
        valid=[encode_reach_reply(reply) for reply in request_golden.REACH_REPLIES.values()],
    ),
    "announcement": Target(
        run=_announcement,
        allowed=(Rejected,),
        valid=[encode_announcement(rollout_golden.announcement())],
    ),
    "rollout-request": Target(
        run=_again(decode_query, encode_query),
        allowed=(RolloutProtocolError,),
        valid=[encode_query(query) for query in rollout_golden.QUERIES.values()],
    ),
    "rollout-answer": Target(
        run=_again(decode_answer, encode_answer),
        allowed=(RolloutProtocolError,),
        valid=[encode_answer(answer) for answer in rollout_golden.ANSWERS.values()],
    ),
    "judge-request": Target(
        run=_again(judge.decode_request, judge.encode_request),
        allowed=(RemoteError,),
        valid=[judge.encode_request(ANSWER), judge.encode_request(RecordQuery())],
    ),
    "judge-reply": Target(
        run=_again(judge.decode_reply, judge.encode_reply),
        allowed=(RemoteError,),
        valid=[judge.encode_reply(reply) for reply in _JUDGE_REPLIES],
    ),
    "judge-record": Target(
        run=_record,
        allowed=(RemoteError,),
        valid=[open_envelope(_RECORD, payload_types=(judge.RECORD_PAYLOAD_TYPE,)).payload],
    ),
    "judge-sealed": Target(run=_sealed_record, allowed=(RemoteError,), valid=[_RECORD]),
    "pubsub-rpc": Target(run=_rpc, allowed=(DecodeError, MalformedFrameError), valid=_rpcs()),
    "identify": Target(run=_identify, allowed=(), valid=[_BINARY_ADDRESS]),
    "half-floats": Target(run=unpack_halves, allowed=(ValueError,), valid=[b"\x00\xbc\x00\x00"]),
    "address": Target(run=_text(parse_peer_address), allowed=(ValueError,), valid=[_ADDRESS]),
    "transport": Target(
        run=_text(parse_transport), allowed=(ValueError,), valid=[b"/ip6/::1/tcp/4001"]
    ),
    "peer-id": Target(run=_text(parse_peer_id), allowed=(ValueError,), valid=[PEER.encode()]),
    "reputation": Target(
        run=_reputation, allowed=(ValueError, KeyError, RecursionError), valid=[_saved_reputation()]
    ),
    "peer-book": Target(
        run=lambda raw: PeerBook.from_json(raw.decode("utf-8")),
        allowed=(ValueError, RecursionError),
        valid=[_book()],
    ),
}


def originals(name: str) -> list[bytes]:
    """Return a target's valid inputs and its saved findings."""
    saved = sorted(CORPUS.glob(f"{name}-*.bin"))
    return [*TARGETS[name].valid, *(path.read_bytes() for path in saved)]

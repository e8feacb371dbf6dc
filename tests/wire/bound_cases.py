"""Every string, bytes and repeated field that peers send each other, with its upper bound.
`test_field_bounds.py` reads a message at the bound, and one slightly above it. A field that is
added to a `.proto` needs a line of `LIMITS` and a sample in which it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from shoal_p2p.intake.validation import ValidationContext, open_message
from shoal_wire import judge
from shoal_wire import judge_messages as j
from shoal_wire.announcement import Announcement, decode_announcement, encode_announcement
from shoal_wire.base58 import b58encode
from shoal_wire.codec import PayloadError, compress, decode_batch
from shoal_wire.envelope import open_envelope, peer_id_of, seal, signed_bytes
from shoal_wire.limits import (
    DIGEST_BYTES,
    MAX_ADDRS_PER_PEER,
    MAX_ALLOWED_PEERS,
    MAX_BATCH_BYTES,
    MAX_BUNDLE_FILES,
    MAX_CHUNK_BYTES,
    MAX_COMPLETION_BYTES,
    MAX_COMPLETIONS,
    MAX_EXAMPLE_BYTES,
    MAX_EXAMPLES,
    MAX_GROUPS_PER_BATCH,
    MAX_HUB_ROWS_BYTES,
    MAX_INLINE_TASK_BYTES,
    MAX_KNOWN_OFFERS,
    MAX_LISTED_BATCHES,
    MAX_NAME_BYTES,
    MAX_OFFER_BYTES,
    MAX_OFFERS,
    MAX_PEERS_IN_LIST,
    MAX_SHARDS_PER_PEER,
    MAX_WHOLE_BATCHES,
    OFFER_ID_BYTES,
    OFFER_PAYLOAD_TYPE,
    SHORT_DIGEST_BYTES,
    TASK_PIECE_BYTES,
)
from shoal_wire.manifest import decode_manifest
from shoal_wire.offers import open_offer
from shoal_wire.peers import decode_peer_list, decode_peer_query, encode_peer_list
from shoal_wire.reach import MAX_PORTS, decode_reach_reply, decode_reach_request
from shoal_wire.rollout_codec import decode_answer, decode_query
from shoal_wire.rules import check_batch
from shoal_wire.task_codec import decode_task_answer, decode_task_query
from shoal_wire.task_messages import MAX_PIECES
from shoal_wire.types import BatchId, InlineTask, PeerId
from shoal_wire.v1 import fetch_pb2, judge_pb2, reach_pb2, rollout_pb2, swarm_pb2, tasks_pb2
from tests.wire import request_golden
from tests.wire import wire_samples as sample

FILES = (fetch_pb2, judge_pb2, reach_pb2, rollout_pb2, swarm_pb2, tasks_pb2)
FILLER = "x"
PEER = peer_id_of(sample.PUBLIC_1)
_PEER_ID = 64
"""Characters of the longest text that may be a peer id."""
_ADDRESS = 512
_MANIFEST = sample.swarm(
    allow_inline_tasks=True,
    max_completions=MAX_COMPLETIONS,
    max_completion_bytes=MAX_COMPLETION_BYTES,
    max_batch_bytes=MAX_BATCH_BYTES,
)
_RULES = sample.batch_rules(_MANIFEST)
_NUM_LOGPROBS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The most that a field may hold."""

    size: int | None = None
    """Bytes of the value, or of each item; None where items are numbers or messages."""
    count: int | None = None
    """Items; None where the field is not repeated."""
    step: int = 1
    """Bytes of one more."""
    is_free: bool = True
    """False where a longest value is refused for another reason, as one that is no known name."""


def _known(size: int) -> Limit:
    return Limit(size=size, is_free=False)


_NAME, _DIGEST, _SHORT = Limit(size=MAX_NAME_BYTES), Limit(size=32), Limit(size=SHORT_DIGEST_BYTES)
LIMITS: dict[str, Limit] = {
    # rollout.proto
    "Envelope.public_key": _known(36),
    "Envelope.payload_type": _known(max(len(b"/shoal/batch-announcement/1"), 22)),
    "Envelope.payload": _known(_MANIFEST.rules.max_message_bytes),
    "Envelope.signature": _known(64),
    "RolloutBatch.swarm_digest": _known(DIGEST_BYTES),
    "RolloutBatch.groups": Limit(count=MAX_GROUPS_PER_BATCH),
    "PolicyInfo.model_name": _NAME,
    "PolicyInfo.tokenizer_digest": _SHORT,
    "RolloutGroup.completions": Limit(count=MAX_COMPLETIONS),
    "Task.family": _NAME,
    "Task.config_digest": _SHORT,
    "Task.verifier": _NAME,
    "Task.verifier_version": _NAME,
    "Task.question_digest": _SHORT,
    "InlineTask.question": Limit(size=MAX_INLINE_TASK_BYTES),
    "InlineTask.answer": Limit(size=MAX_INLINE_TASK_BYTES),
    "Completion.text": Limit(size=MAX_COMPLETION_BYTES),
    "Completion.logprobs": Limit(size=2 * _NUM_LOGPROBS, step=2),
    # fetch.proto
    "BatchAnnouncement.swarm_digest": _DIGEST,
    "BatchAnnouncement.batch_id": _DIGEST,
    "RecentQuery.shards": Limit(count=MAX_SHARDS_PER_PEER),
    "SinceQuery.shards": Limit(count=MAX_SHARDS_PER_PEER),
    "RecentQuery.before": _DIGEST,
    "SinceQuery.publisher": _NAME,
    "WholeQuery.batch_ids": Limit(size=DIGEST_BYTES, count=MAX_WHOLE_BATCHES),
    "ChunkQuery.batch_id": _DIGEST,
    "Listing.batches": Limit(count=MAX_LISTED_BATCHES),
    "BatchRef.batch_id": _DIGEST,
    "BatchRef.publisher": _NAME,
    "Envelopes.envelopes": Limit(size=MAX_CHUNK_BYTES, count=MAX_WHOLE_BATCHES),
    "Chunk.data": Limit(size=MAX_CHUNK_BYTES),
    # judge.proto
    "ChallengeRequest.swarm_digest": _DIGEST,
    "ChallengeAnswer.challenge_id": Limit(size=j.CHALLENGE_ID_BYTES),
    "ChallengeAnswer.text": Limit(size=MAX_COMPLETION_BYTES),
    "ChallengeAnswer.model_name": _NAME,
    "RecordQuery.peer_id": Limit(size=_PEER_ID),
    "JudgeReply.record": Limit(size=j.MAX_RECORD_BYTES),
    "Challenge.challenge_id": Limit(size=j.CHALLENGE_ID_BYTES),
    "Challenge.family": _NAME,
    "Challenge.question": Limit(size=j.MAX_QUESTION_BYTES),
    "RecordList.envelopes": Limit(size=j.MAX_RECORD_BYTES, count=j.MAX_RECORDS),
    "JudgeRecord.peer_id": Limit(size=_PEER_ID),
    "JudgeRecord.model_name": _NAME,
    "JudgeRecord.swarm_digest": _DIGEST,
    "JudgeRecord.family": _NAME,
    "JudgeRecord.config_digest": _SHORT,
    "JudgeRecord.answer_digest": _DIGEST,
    # reach.proto
    "ReachRequest.ports": Limit(count=MAX_PORTS),
    "ReachReply.observed": Limit(size=128),
    "ReachReply.open_ports": Limit(count=MAX_PORTS),
    # swarm.proto
    "SwarmManifest.swarm_name": _NAME,
    "SwarmManifest.families": Limit(count=256),
    "SwarmManifest.allowed_peers": Limit(size=_PEER_ID, count=MAX_ALLOWED_PEERS),
    "TaskFamily.name": _NAME,
    "TaskFamily.generator": _NAME,
    "TaskFamily.config_json": Limit(size=16 * 1024),
    "TaskFamily.verifier": _NAME,
    "TaskFamily.verifier_version": _NAME,
    "TaskFamily.answer_format": _known(len("tagged")),
    "PeerQuery.shards": Limit(count=MAX_SHARDS_PER_PEER),
    "PeerList.peers": Limit(count=MAX_PEERS_IN_LIST),
    "PeerAddresses.peer_id": _known(_ADDRESS - len("/p2p/")),
    "PeerAddresses.addresses": Limit(size=_ADDRESS, count=MAX_ADDRS_PER_PEER),
    "PeerAddresses.shards": Limit(count=MAX_SHARDS_PER_PEER),
    # tasks.proto
    "BundleQuery.family": _SHORT,
    "PieceQuery.family": _SHORT,
    "Bundle.files": Limit(count=MAX_BUNDLE_FILES),
    "Bundle.good": Limit(size=MAX_EXAMPLE_BYTES, count=MAX_EXAMPLES),
    "Bundle.bad": Limit(size=MAX_EXAMPLE_BYTES, count=MAX_EXAMPLES),
    "Bundle.hub_rows": Limit(size=MAX_HUB_ROWS_BYTES),
    "BundleFile.name": Limit(size=80),
    "BundleFile.sha256": _DIGEST,
    "BundleFile.pieces": Limit(size=DIGEST_BYTES, count=MAX_PIECES),
    "Piece.data": Limit(size=TASK_PIECE_BYTES),
    "OffersQuery.swarm_digest": _DIGEST,
    "OffersQuery.known": Limit(size=OFFER_ID_BYTES, count=MAX_KNOWN_OFFERS),
    "Offers.envelopes": Limit(size=MAX_OFFER_BYTES, count=MAX_OFFERS),
    "Offers.training": Limit(count=MAX_OFFERS),
    "Training.family": _SHORT,
    "TaskOffer.swarm_digest": _DIGEST,
}


def fields_that_grow(file: Any) -> Iterator[FieldDescriptor]:
    """Yield every field of a file's messages that may be long: text, bytes, or repeated."""
    for kind in file.message_types_by_name.values():
        for field in kind.fields:
            if field.is_repeated or field.type in (field.TYPE_STRING, field.TYPE_BYTES):
                yield field


def name_of(field: FieldDescriptor) -> str:
    """Return a field's name as `LIMITS` has it."""
    assert field.containing_type is not None
    return f"{field.containing_type.name}.{field.name}"


# How each whole message is read: as a node reads it


def _read_batch(raw: bytes) -> object:
    batch = decode_batch(compress(raw), max_bytes=MAX_BATCH_BYTES)
    reason = check_batch(batch, _RULES, now_ms=sample.NOW_MS)
    if reason is not None:
        raise PayloadError(reason)
    return batch


def _read_envelope(raw: bytes) -> object:
    context = ValidationContext(rules=_RULES, me=PeerId("me"))
    return open_message(raw, author=PEER, context=context)


def _read_record(raw: bytes) -> object:
    public_key, key = sample.keypair()
    sealed = seal(raw, public_key=public_key, sign=key.sign, payload_type=judge.RECORD_PAYLOAD_TYPE)
    return judge.open_record(sealed, judge=PEER)


def _read_offer(raw: bytes) -> object:
    public_key, key = sample.keypair()
    return open_offer(
        seal(raw, public_key=public_key, sign=key.sign, payload_type=OFFER_PAYLOAD_TYPE)
    )


def _batches() -> Iterator[Message]:
    scored = sample.completion(logprobs=(-1.0,) * _NUM_LOGPROBS)
    inline = sample.task(inline=InlineTask(question="Why?", answer="So."))
    group = sample.group(inline, (scored, scored))
    yield sample.batch_message(sample.batch(swarm_digest=_MANIFEST.digest, groups=(group,)))


def _announcement() -> bytes:
    announced = Announcement(
        swarm_digest=_MANIFEST.digest,
        sequence=2,
        previous_sequence=1,
        created_ms=sample.NOW_MS,
        num_groups=1,
        batch_id=BatchId(bytes(DIGEST_BYTES)),
        num_bytes=100_000,
        expires_ms=sample.NOW_MS,
    )
    return encode_announcement(announced)


def _queries() -> Iterator[Message]:
    request, digest = fetch_pb2.RolloutRequest, bytes(DIGEST_BYTES)
    yield request(recent=fetch_pb2.RecentQuery(shards=[1], max_batches=1, before=digest))
    yield request(since=fetch_pb2.SinceQuery(publisher=PEER, max_batches=1, shards=[1]))
    yield request(whole=fetch_pb2.WholeQuery(batch_ids=[digest]))
    yield request(chunk=fetch_pb2.ChunkQuery(batch_id=digest, length=1))


def _answers() -> Iterator[Message]:
    answer = fetch_pb2.RolloutAnswer
    ref = fetch_pb2.BatchRef(
        batch_id=bytes(DIGEST_BYTES), publisher="p", sequence=1, num_bytes=1, num_groups=1
    )
    yield answer(listing=fetch_pb2.Listing(batches=[ref]))
    yield answer(envelopes=fetch_pb2.Envelopes(envelopes=[b"e"]))
    yield answer(chunk=fetch_pb2.Chunk(num_bytes=1, data=b"d"))


def _task_queries() -> Iterator[Message]:
    request, family = tasks_pb2.TaskRequest, bytes(SHORT_DIGEST_BYTES)
    yield request(bundle=tasks_pb2.BundleQuery(family=family))
    yield request(piece=tasks_pb2.PieceQuery(family=family, file=1, piece=2))
    digest, known = bytes(DIGEST_BYTES), [bytes(OFFER_ID_BYTES)]
    yield request(offers=tasks_pb2.OffersQuery(swarm_digest=digest, known=known))


def _task_answers() -> Iterator[Message]:
    digest = bytes(DIGEST_BYTES)
    file = tasks_pb2.BundleFile(name="rows.jsonl", num_bytes=1, sha256=digest, pieces=[digest])
    bundle = tasks_pb2.Bundle(files=[file], good=["#### 1"], bad=["1"], hub_rows="{}")
    yield tasks_pb2.TaskAnswer(bundle=bundle)
    yield tasks_pb2.TaskAnswer(piece=tasks_pb2.Piece(data=b"d"))
    training = [tasks_pb2.Training(family=bytes(SHORT_DIGEST_BYTES), reward=0.5, groups=3)]
    offers = tasks_pb2.Offers(envelopes=[request_golden.sealed_offer()], training=training)
    yield tasks_pb2.TaskAnswer(offers=offers)


def _parsed(kind: Any, *encoded: bytes) -> tuple[Message, ...]:
    return tuple(kind.FromString(raw) for raw in encoded)


_REQUESTS = (judge.encode_request(one) for one in request_golden.JUDGE_REQUESTS.values())
_REPLIES = (judge.encode_reply(one) for one in request_golden.judge_replies().values())
_SEALED = rollout_pb2.Envelope.FromString(sample.sealed())
_LIST = encode_peer_list(request_golden.PEER_LIST)
ROOTS: tuple[tuple[Callable[[bytes], object], tuple[Message, ...]], ...] = (
    (_read_envelope, (_SEALED,)),
    (_read_batch, tuple(_batches())),
    (decode_announcement, _parsed(fetch_pb2.BatchAnnouncement, _announcement())),
    (decode_query, tuple(_queries())),
    (decode_answer, tuple(_answers())),
    (judge.decode_request, _parsed(judge_pb2.JudgeRequest, *_REQUESTS)),
    (judge.decode_reply, _parsed(judge_pb2.JudgeReply, *_REPLIES)),
    (
        _read_record,
        _parsed(judge_pb2.JudgeRecord, open_envelope(
            request_golden.sealed_record(), payload_types=(judge.RECORD_PAYLOAD_TYPE,)
        ).payload),
    ),
    (
        _read_offer,
        _parsed(tasks_pb2.TaskOffer, open_envelope(
            request_golden.sealed_offer(), payload_types=(OFFER_PAYLOAD_TYPE,)
        ).payload),
    ),
    (decode_reach_request, (reach_pb2.ReachRequest(ports=[1]),)),
    (decode_reach_reply, (reach_pb2.ReachReply(observed="/ip4/1.2.3.4", open_ports=[1]),)),
    (decode_peer_query, (swarm_pb2.PeerQuery(shards=[1]),)),
    (decode_task_query, tuple(_task_queries())),
    (decode_task_answer, tuple(_task_answers())),
    (decode_peer_list, _parsed(swarm_pb2.PeerList, _LIST)),
    (decode_manifest, _parsed(swarm_pb2.SwarmManifest, request_golden.manifest().raw)),
)  # fmt: skip
"""Readers of whole messages, each with samples in which every field stands."""


def messages_with(name: str) -> Iterator[tuple[Callable[[bytes], object], Message, Message]]:
    """Yield every sample's copy that has a field, with its reader and the part that holds it."""
    kind, field = name.split(".")
    for read, samples in ROOTS:
        for one in samples:
            made = type(one).FromString(one.SerializeToString())
            for part in _parts(made):
                if part.DESCRIPTOR.name == kind and _has(part, field):
                    yield read, made, part
                    break


def _has(part: Message, field: str) -> bool:
    return any(found.name == field for found, _ in part.ListFields())


def _parts(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                yield from _parts(inner)


# How a field is filled


def fill(root: Message, part: Message, name: str, *, size: int | None, count: int | None) -> None:
    """Give a field a value of `size`, or `count` items; the rest stays unchanged and valid."""
    field = name.split(".")[1]
    held = getattr(part, field)
    if count is None and size is not None:
        whole = _value(name, size, part)
        if hasattr(held, "append"):
            held[-1] = whole  # a list that has to ascend still does
        else:
            setattr(part, field, whole)
    elif count is not None:
        items = [_item(name, held[0], number) for number in range(count)]
        del held[:]
        held.extend(items)
    _repair(root, part, name)


def _value(name: str, size: int, part: Any) -> Any:
    if name == "PeerAddresses.addresses":
        ending = f"/p2p/{part.peer_id}"
        return "/dns4/".ljust(size - len(ending), FILLER) + ending
    if name == "TaskFamily.config_json":
        return '{"a":"' + FILLER * (size - 8) + '"}'
    if name == "Completion.logprobs":
        return b"\x00\xbc" * (size // 2) + b"\x00" * (size % 2)
    kind = next(one for file in FILES for one in fields_that_grow(file.DESCRIPTOR)
                if name_of(one) == name)  # fmt: skip
    return FILLER * size if kind.type == kind.TYPE_STRING else FILLER.encode() * size


def _item(name: str, first: Any, number: int) -> Any:
    """Return one of many items that are valid together."""
    if name in (
        "RecentQuery.shards",
        "SinceQuery.shards",
        "PeerQuery.shards",
        "PeerAddresses.shards",
    ):
        return number
    if name == "SwarmManifest.allowed_peers":
        # Ascending, and each of the right length.
        return b58encode(b"\x24" + number.to_bytes(2, "big") + bytes(33))
    if name == "Bundle.files":
        copy = type(first).FromString(first.SerializeToString())
        copy.name = str(number)
        return copy
    if name == "SwarmManifest.families":
        copy = type(first).FromString(first.SerializeToString())
        copy.name = str(number)
        return copy
    return first


def _repair(root: Any, part: Any, name: str) -> None:
    """Change what has to agree with the field: signatures, and addresses of a peer's name."""
    if name == "PeerAddresses.peer_id":
        del part.addresses[:]
        part.addresses.append(f"/p2p/{part.peer_id}")
    if name == "BundleFile.pieces":
        part.num_bytes = len(part.pieces) * TASK_PIECE_BYTES
    if root.DESCRIPTOR.name == "Envelope" and name != "Envelope.signature":
        _, key = sample.keypair()
        root.signature = key.sign(signed_bytes(root.payload_type, root.payload))

"""Every message of the contract, and every field of it, has a known answer, and this code gives it.

A change here breaks every other implementation: a vector is added, never altered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from shoal_ipc.codec import decode_ipc
from shoal_ipc.v1 import ipc_pb2
from shoal_wire import judge
from shoal_wire.codec import decode_batch, encode_batch
from shoal_wire.envelope import open_envelope
from shoal_wire.framing import FrameDecoder
from shoal_wire.limits import MAX_BATCH_BYTES, OFFER_PAYLOAD_TYPE
from shoal_wire.manifest import decode_manifest
from shoal_wire.peers import decode_peer_list, decode_peer_query
from shoal_wire.reach import decode_reach_reply, decode_reach_request
from shoal_wire.task_codec import decode_task_answer, decode_task_query
from shoal_wire.types import PeerId
from shoal_wire.v1 import fetch_pb2, judge_pb2, reach_pb2, rollout_pb2, swarm_pb2, tasks_pb2
from tests.wire import ipc_golden, request_golden
from tests.wire.test_wire_vectors import recorded

FILES = (fetch_pb2, ipc_pb2, judge_pb2, reach_pb2, rollout_pb2, swarm_pb2, tasks_pb2)


IPC = recorded("ipc")
REQUESTS = recorded("requests")


def unframed(vector: dict[str, Any]) -> bytes:
    (raw,) = FrameDecoder().feed(bytes.fromhex(vector["frame"]))
    return raw


def test_the_vectors_are_as_recorded() -> None:
    assert ipc_golden.vectors() == IPC
    assert request_golden.vectors() == REQUESTS


@pytest.mark.parametrize("vector", IPC, ids=lambda vector: vector["name"])
def test_a_recorded_frame_of_the_socket_decodes_to_its_message(vector: dict[str, Any]) -> None:
    assert decode_ipc(unframed(vector)).body == ipc_golden.BODIES[vector["name"]]


def test_recorded_requests_decode_to_their_messages() -> None:
    read_by: dict[str, Callable[[bytes], Any]] = {
        "PeerQuery": decode_peer_query,
        "ReachRequest": decode_reach_request,
        "JudgeRequest": judge.decode_request,
        "TaskRequest": decode_task_query,
    }
    found = [read_by[vector["type"]](unframed(vector)) for vector in REQUESTS["requests"]]
    queries = [(), request_golden.SHARDS, (), request_golden.PORTS]
    judged, tasks = request_golden.JUDGE_REQUESTS, request_golden.TASK_QUERIES
    assert found == [*queries, *judged.values(), *tasks.values()]


def test_recorded_replies_are_read_as_what_was_answered() -> None:
    read_by: dict[str, Callable[[bytes], Any]] = {
        "PeerList": decode_peer_list,
        "ReachReply": decode_reach_reply,
        "JudgeReply": judge.decode_reply,
        "TaskAnswer": decode_task_answer,
    }
    found = [read_by[vector["type"]](unframed(vector)) for vector in REQUESTS["replies"]]
    replies = (
        *request_golden.REACH_REPLIES.values(),
        *request_golden.judge_replies().values(),
        *request_golden.TASK_ANSWERS.values(),
    )
    assert found == [request_golden.PEER_LIST, (), *replies]


def test_a_recorded_record_a_manifest_and_a_batch_are_read() -> None:
    record = REQUESTS["record"]
    opened = judge.open_record(bytes.fromhex(record["envelope"]), judge=PeerId(record["judge"]))
    assert opened == request_golden.RECORD
    made = decode_manifest(bytes.fromhex(REQUESTS["manifest"]["bytes"]))
    assert made == request_golden.manifest()
    assert made.digest.hex() == REQUESTS["manifest"]["digest"]
    payload = encode_batch(request_golden.batch())
    assert decode_batch(payload, max_bytes=MAX_BATCH_BYTES) == request_golden.batch()


def messages() -> Iterator[Message]:
    """Everything that stands in any vector, as protobuf reads it."""
    for vector in IPC:
        yield ipc_pb2.IpcFrame.FromString(unframed(vector))
    offer = open_envelope(request_golden.sealed_offer(), payload_types=(OFFER_PAYLOAD_TYPE,))
    yield tasks_pb2.TaskOffer.FromString(offer.payload)
    for vector in (*REQUESTS["requests"], *REQUESTS["replies"]):
        kinds = {
            **vars(judge_pb2),
            **vars(reach_pb2),
            **vars(swarm_pb2),
            **vars(tasks_pb2),
        }
        yield kinds[vector["type"]].FromString(unframed(vector))
    rollouts = recorded("rollouts")
    for vector in rollouts["requests"]:
        yield fetch_pb2.RolloutRequest.FromString(unframed(vector))
    for vector in rollouts["answers"]:
        yield fetch_pb2.RolloutAnswer.FromString(unframed(vector))
    announced = bytes.fromhex(rollouts["announcement"]["payload"])
    yield fetch_pb2.BatchAnnouncement.FromString(announced)
    envelope = rollout_pb2.Envelope.FromString(bytes.fromhex(REQUESTS["record"]["envelope"]))
    yield envelope
    yield judge_pb2.JudgeRecord.FromString(envelope.payload)
    batches = [vector["batch_bytes"] for vector in recorded("envelope")["valid"]]
    for raw in (*batches, REQUESTS["batch"]["bytes"]):
        yield rollout_pb2.RolloutBatch.FromString(bytes.fromhex(raw))
    for raw in (recorded("manifest")["manifest"], REQUESTS["manifest"]["bytes"]):
        yield swarm_pb2.SwarmManifest.FromString(bytes.fromhex(raw))


def field_paths(message: Message) -> Iterator[str]:
    """Names of the fields that a message has, and of the enumerations' values in it."""
    yield message.DESCRIPTOR.full_name
    for field, value in message.ListFields():
        yield field.full_name
        for item in value if hasattr(value, "append") else (value,):
            if field.message_type is not None:
                yield from field_paths(item)
            elif field.enum_type is not None:
                yield f"{field.enum_type.full_name}.{field.enum_type.values_by_number[item].name}"


def contract_paths() -> Iterator[str]:
    """Yield the paths of all fields and values of the contract."""
    for file in FILES:
        for kind in file.DESCRIPTOR.message_types_by_name.values():
            yield from _names(kind)
        for enum in file.DESCRIPTOR.enum_types_by_name.values():
            yield from (f"{enum.full_name}.{v.name}" for v in enum.values if v.number)


def _names(kind: Descriptor) -> Iterator[str]:
    yield kind.full_name
    yield from (field.full_name for field in kind.fields)


def test_every_message_field_and_enumerated_value_has_a_known_answer() -> None:
    known = {name for message in messages() for name in field_paths(message)}
    assert set(contract_paths()) - known == set()

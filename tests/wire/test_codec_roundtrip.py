"""Everything that encodes decodes to the same value; unknown fields and half floats behave."""

from __future__ import annotations

import math
import struct
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_ipc import messages as m
from shoal_ipc.codec import decode_ipc, encode_ipc
from shoal_ipc.v1 import ipc_pb2
from shoal_wire import digests
from shoal_wire.base58 import b58encode
from shoal_wire.codec import compress, decode_batch, encode_batch
from shoal_wire.envelope import open_envelope
from shoal_wire.framing import FrameError
from shoal_wire.halffloat import pack_halves, unpack_halves
from shoal_wire.limits import MAX_BATCH_BYTES, MAX_COMPLETIONS
from shoal_wire.types import RolloutBatch, RolloutGroup
from shoal_wire.v1 import rollout_pb2 as pb
from tests.wire import wire_samples as sample
from tests.wire import wire_strategies as make


@given(make.batches)
@settings(max_examples=100)
def test_a_batch_survives_the_wire(batch: RolloutBatch) -> None:
    assert decode_batch(encode_batch(batch), max_bytes=MAX_BATCH_BYTES) == batch


@pytest.mark.parametrize("kind", get_args(m.Body), ids=lambda kind: kind.__name__)
def test_an_ipc_message_survives_the_socket(kind: type) -> None:
    @given(make.values_of(kind), make.numbers)
    @settings(max_examples=25)
    def check(body: m.Body, request_id: int) -> None:
        frame = m.IpcFrame(request_id=request_id, body=body)
        assert decode_ipc(encode_ipc(frame)) == frame

    check()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "no known body"),
        (b"\x08\x01", "no known body"),
        (b"\xff", "does not parse"),
        (ipc_pb2.IpcFrame(hello=ipc_pb2.Hello(ipc_version=1)).SerializeToString(), "role"),
        (
            ipc_pb2.IpcFrame(
                publish=ipc_pb2.Publish(groups=[pb.RolloutGroup(task=pb.Task())])
            ).SerializeToString(),
            "digest of a task",
        ),
    ],
    ids=["empty", "no body", "not protobuf", "no role", "bad group"],
)
def test_a_frame_that_breaks_the_contract_is_a_frame_error(raw: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        decode_ipc(raw)


def test_a_sampled_group_under_a_false_id_is_refused() -> None:
    frame = ipc_pb2.IpcFrame(request_id=1)
    item = frame.sample_reply.groups.add(group_id=bytes(16))
    item.group.CopyFrom(sample.batch_message().groups[0])
    with pytest.raises(FrameError, match="its id names"):
        decode_ipc(frame.SerializeToString())
    item.group_id = digests.group_id(sample.group())
    assert isinstance(decode_ipc(frame.SerializeToString()).body, m.SampleReply)


def test_a_sampled_groups_label_is_bounded_and_may_be_empty() -> None:
    item = ipc_pb2.PublishedGroup(group_id=digests.group_id(sample.group()))
    item.group.CopyFrom(sample.batch_message().groups[0])
    frame = ipc_pb2.IpcFrame(request_id=1, sample_reply=ipc_pb2.SampleReply(groups=[item]))
    for text in ("", "x" * m.MAX_LABEL_CHARS):
        frame.sample_reply.groups[0].network = text
        reply = decode_ipc(frame.SerializeToString()).body
        assert isinstance(reply, m.SampleReply)
        assert reply.groups[0].network == text
    frame.sample_reply.groups[0].network = "x" * (m.MAX_LABEL_CHARS + 1)
    with pytest.raises(FrameError, match="label"):
        decode_ipc(frame.SerializeToString())


def test_the_hard_caps_hold_without_a_manifest() -> None:
    answers = (sample.completion(),) * (MAX_COMPLETIONS + 1)
    good, bad = (
        m.Publish(
            client_key=b"k",
            round=1,
            policy=sample.batch().policy,
            sampling=sample.batch().sampling,
            groups=(sample.group(completions=answers[:count]),),
        )
        for count in (MAX_COMPLETIONS, MAX_COMPLETIONS + 1)
    )
    assert decode_ipc(encode_ipc(m.IpcFrame(request_id=1, body=good))).body == good
    with pytest.raises(FrameError, match="number of completions"):
        decode_ipc(encode_ipc(m.IpcFrame(request_id=1, body=bad)))


@given(st.binary(min_size=1, max_size=40))
def test_unknown_fields_of_a_batch_are_accepted_and_survive_in_the_raw_bytes(value: bytes) -> None:
    # Field 1999, length-delimited, in what is signed; around it there is none to add.
    unknown = b"\xfa\x7c" + bytes([len(value)]) + value
    payload = compress(sample.batch_message().SerializeToString() + unknown)
    raw = sample.sealed(payload)
    opened = open_envelope(raw)
    assert opened.raw == raw
    assert opened.payload == payload
    assert decode_batch(opened.payload, max_bytes=MAX_BATCH_BYTES) == sample.batch()


@given(make.groups, make.texts)
def test_a_group_id_covers_every_answer_in_its_place(group: RolloutGroup, text: str) -> None:
    def with_answers(*answers: str) -> RolloutGroup:
        return RolloutGroup(
            task=group.task, completions=tuple(sample.completion(answer) for answer in answers)
        )

    assert digests.group_id(with_answers(text, "x")) != digests.group_id(with_answers(text + "x"))
    assert digests.group_id(with_answers(text, text + "x")) != digests.group_id(
        with_answers(text + "x", text)
    )
    claims = sample.completion(text, num_tokens=9, logprobs=(-1.0,))
    assert digests.group_id(with_answers(text)) == digests.group_id(
        RolloutGroup(task=group.task, completions=(claims,))
    )


@given(st.lists(make.finite_halves).map(tuple))
def test_finite_halves_survive(values: tuple[float, ...]) -> None:
    assert unpack_halves(pack_halves(values)) == values


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_finite_number_never_packs_to_infinity(value: float) -> None:
    (packed,) = unpack_halves(pack_halves([value]))
    assert math.isfinite(packed)
    assert packed == pytest.approx(min(max(value, -65504.0), 65504.0), rel=1e-3, abs=1e-7)


@given(st.binary(max_size=40))
def test_any_bytes_unpack_to_finite_numbers_or_a_value_error(data: bytes) -> None:
    count, odd = divmod(len(data), 2)
    expected = () if odd else struct.unpack(f"<{count}e", data)
    if odd or not all(math.isfinite(value) for value in expected):
        with pytest.raises(ValueError, match=r"odd length|not finite"):
            unpack_halves(data)
    else:
        assert unpack_halves(data) == expected


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"", ""), (b"\0\0", "11"), (b"\0\x01", "12"), (b"Hello World!", "2NEpo7TZRRrLZSi2U")],
)
def test_base58_of_known_values(data: bytes, text: str) -> None:
    assert b58encode(data) == text

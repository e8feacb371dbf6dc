"""IPC frames to and from bytes (`ipc_messages` ↔ `v1/ipc.proto`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.message import DecodeError

from shoal_ipc import messages as m
from shoal_wire import codec
from shoal_wire.digests import group_id as content_id
from shoal_wire.errors import FrameError
from shoal_wire.types import BatchId, FinishReason, GroupId, PeerId, PublishedGroup
from shoal_wire.v1 import ipc_pb2 as pb

_ROLE_TO_PB = {
    m.Role.TRAINER: pb.ROLE_TRAINER,
    m.Role.INSPECTOR: pb.ROLE_INSPECTOR,
    m.Role.PUBLISHER: pb.ROLE_PUBLISHER,
}
_FINISH_TO_PB = {FinishReason.STOP: 1, FinishReason.LENGTH: 2}
_FINISH_FROM_PB = {value: key for key, value in _FINISH_TO_PB.items()}
_MAX_PEER_ID_CHARS = 256
_ROLE_FROM_PB = {value: key for key, value in _ROLE_TO_PB.items()}


def encode_ipc(frame: m.IpcFrame) -> bytes:
    """Return the protobuf bytes of `frame`, to be framed by `shoal_ipc.framing`."""
    name, encode = _ENCODERS[type(frame.body)]
    return pb.IpcFrame(
        request_id=frame.request_id, **{name: encode(frame.body)}
    ).SerializeToString()


def decode_ipc(raw: bytes) -> m.IpcFrame:
    """Decode one frame's body.

    Raises:
        FrameError: not a message of this contract.
    """
    try:
        message = pb.IpcFrame.FromString(raw)
        name = message.WhichOneof("body")
        if name is None:
            raise FrameError("frame has no known body: node and trainer differ in version")
        body = _DECODERS[name](getattr(message, name))
    except DecodeError:
        raise FrameError("frame does not parse") from None
    except codec.PayloadError as error:
        raise FrameError(f"frame holds a bad group: {error.reason.value}") from None
    return m.IpcFrame(request_id=message.request_id, body=body)


def _ids(raw: Iterable[bytes]) -> tuple[GroupId, ...]:
    return tuple(GroupId(item) for item in raw)


def _encode_hello(body: m.Hello) -> pb.Hello:
    return pb.Hello(
        ipc_version=body.ipc_version,
        role=_ROLE_TO_PB[body.role],
        pid=body.pid,
        consumed_ids=body.consumed_ids,
        held_ids=body.held_ids,
    )


def _decode_hello(message: pb.Hello) -> m.Hello:
    role = _ROLE_FROM_PB.get(message.role)
    if role is None:
        raise FrameError("hello states no known role")
    return m.Hello(
        ipc_version=message.ipc_version,
        role=role,
        pid=message.pid,
        consumed_ids=_ids(message.consumed_ids),
        held_ids=_ids(message.held_ids),
    )


def _encode_publish(body: m.Publish) -> pb.Publish:
    return pb.Publish(
        client_key=body.client_key,
        round=body.round,
        policy=codec.policy_to_pb(body.policy),
        sampling=codec.sampling_to_pb(body.sampling),
        groups=[codec.group_to_pb(group) for group in body.groups],
    )


def _decode_publish(message: pb.Publish) -> m.Publish:
    return m.Publish(
        client_key=message.client_key,
        round=message.round,
        policy=codec.policy_from_pb(message.policy),
        sampling=codec.sampling_from_pb(message.sampling),
        groups=tuple(codec.group_from_pb(group) for group in message.groups),
    )


def _encode_sampled(item: m.SampledGroup) -> pb.SampledGroup:
    published = item.published
    return pb.SampledGroup(
        group_id=published.group_id,
        publisher=published.publisher,
        batch_id=published.batch_id,
        round=published.round,
        created_ms=published.created_ms,
        policy=codec.policy_to_pb(published.policy),
        sampling=codec.sampling_to_pb(published.sampling),
        group=codec.group_to_pb(published.group),
        own=item.own,
    )


def _decode_sampled(message: pb.SampledGroup) -> m.SampledGroup:
    group = codec.group_from_pb(message.group)
    if content_id(group) != message.group_id:
        raise FrameError("sampled group does not have the content its id names")
    return m.SampledGroup(
        published=PublishedGroup(
            group_id=GroupId(message.group_id),
            publisher=PeerId(message.publisher),
            batch_id=BatchId(message.batch_id),
            round=message.round,
            created_ms=message.created_ms,
            policy=codec.policy_from_pb(message.policy),
            sampling=codec.sampling_from_pb(message.sampling),
            group=group,
        ),
        own=message.own,
    )


def _encode_sample_reply(body: m.SampleReply) -> pb.SampleReply:
    return pb.SampleReply(
        groups=[_encode_sampled(item) for item in body.groups],
        ready_local=body.ready_local,
        ready_external=body.ready_external,
    )


def _decode_sample_reply(message: pb.SampleReply) -> m.SampleReply:
    return m.SampleReply(
        groups=tuple(_decode_sampled(item) for item in message.groups),
        ready_local=message.ready_local,
        ready_external=message.ready_external,
    )


def _encode_report(body: m.Report) -> pb.Report:
    return pb.Report(
        groups=[
            pb.GroupReport(group_id=g.group_id, publisher=g.publisher, rewards=g.rewards)
            for g in body.groups
        ]
    )


def _decode_report(message: pb.Report) -> m.Report:
    return m.Report(
        groups=tuple(
            m.GroupReport(
                group_id=GroupId(g.group_id),
                publisher=PeerId(g.publisher),
                rewards=tuple(g.rewards),
            )
            for g in message.groups
        )
    )


def _encode_control(body: m.Control) -> pb.Control:
    return pb.Control(action=body.action.value, peer_id=body.peer_id)


def _decode_control(message: pb.Control) -> m.Control:
    try:
        action = m.ControlAction(message.action)
    except ValueError:
        raise FrameError("control states no known action") from None
    if len(message.peer_id) > _MAX_PEER_ID_CHARS:
        raise FrameError("control names no peer")
    return m.Control(action=action, peer_id=message.peer_id)


def _encode_judge_answer(body: m.JudgeAnswer) -> pb.JudgeAnswer:
    return pb.JudgeAnswer(
        challenge_id=body.challenge_id,
        text=body.text,
        finish_reason=_FINISH_TO_PB[body.finish_reason],
        round=body.round,
        policy_version=body.policy_version,
        model_name=body.model_name,
        draws_externals=body.draws_externals,
    )


def _decode_judge_answer(message: pb.JudgeAnswer) -> m.JudgeAnswer:
    reason = _FINISH_FROM_PB.get(message.finish_reason)
    if reason is None:
        raise FrameError("answer to a judge states no known finish reason")
    return m.JudgeAnswer(
        challenge_id=message.challenge_id,
        text=message.text,
        finish_reason=reason,
        round=message.round,
        policy_version=message.policy_version,
        model_name=message.model_name,
        draws_externals=message.draws_externals,
    )


_ENCODERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    m.Hello: ("hello", _encode_hello),
    m.HelloReply: (
        "hello_reply",
        lambda b: pb.HelloReply(ipc_version=b.ipc_version, peer_id=b.peer_id, manifest=b.manifest),
    ),
    m.Publish: ("publish", _encode_publish),
    m.PublishReply: (
        "publish_reply",
        lambda b: pb.PublishReply(sequence=b.sequence, batch_id=b.batch_id, is_new=b.is_new),
    ),
    m.Sample: (
        "sample",
        lambda b: pb.Sample(
            num_local=b.num_local,
            num_external=b.num_external,
            strategy=b.strategy,
            lease_seconds=b.lease_seconds,
            exclude_ids=b.exclude_ids,
        ),
    ),
    m.SampleReply: ("sample_reply", _encode_sample_reply),
    m.Settle: (
        "settle",
        lambda b: pb.Settle(consumed_ids=b.consumed_ids, released_ids=b.released_ids),
    ),
    m.Done: ("done", lambda b: pb.Done(count=b.count)),
    m.Report: ("report", _encode_report),
    m.TrainerStatus: ("trainer_status", lambda b: pb.TrainerStatus(json=b.json)),
    m.Inspect: ("inspect", lambda b: pb.Inspect(view=b.view, options_json=b.options_json)),
    m.InspectReply: ("inspect_reply", lambda b: pb.InspectReply(json=b.json)),
    m.Control: ("control", _encode_control),
    m.JudgeAsk: ("judge_ask", lambda _: pb.JudgeAsk()),
    m.JudgeChallenge: (
        "judge_challenge",
        lambda b: pb.JudgeChallenge(
            challenge_id=b.challenge_id, family=b.family, question=b.question, tagged=b.tagged
        ),
    ),
    m.JudgeAnswer: ("judge_answer", _encode_judge_answer),
    m.JudgeScore: (
        "judge_score",
        lambda b: pb.JudgeScore(score=b.score, number=b.number, family=b.family),
    ),
    m.Failure: ("failure", lambda b: pb.Failure(reason=b.reason, retryable=b.retryable)),
}

_DECODERS: dict[str, Callable[[Any], m.Body]] = {
    "hello": _decode_hello,
    "hello_reply": lambda p: m.HelloReply(
        ipc_version=p.ipc_version, peer_id=PeerId(p.peer_id), manifest=p.manifest
    ),
    "publish": _decode_publish,
    "publish_reply": lambda p: m.PublishReply(
        sequence=p.sequence, batch_id=BatchId(p.batch_id), is_new=p.is_new
    ),
    "sample": lambda p: m.Sample(
        num_local=p.num_local,
        num_external=p.num_external,
        strategy=p.strategy,
        lease_seconds=p.lease_seconds,
        exclude_ids=_ids(p.exclude_ids),
    ),
    "sample_reply": _decode_sample_reply,
    "settle": lambda p: m.Settle(
        consumed_ids=_ids(p.consumed_ids), released_ids=_ids(p.released_ids)
    ),
    "done": lambda p: m.Done(count=p.count),
    "report": _decode_report,
    "trainer_status": lambda p: m.TrainerStatus(json=p.json),
    "inspect": lambda p: m.Inspect(view=p.view, options_json=p.options_json),
    "inspect_reply": lambda p: m.InspectReply(json=p.json),
    "control": _decode_control,
    "judge_ask": lambda _: m.JudgeAsk(),
    "judge_challenge": lambda p: m.JudgeChallenge(
        challenge_id=p.challenge_id, family=p.family, question=p.question, tagged=p.tagged
    ),
    "judge_answer": _decode_judge_answer,
    "judge_score": lambda p: m.JudgeScore(score=p.score, number=p.number, family=p.family),
    "failure": lambda p: m.Failure(reason=p.reason, retryable=p.retryable),
}

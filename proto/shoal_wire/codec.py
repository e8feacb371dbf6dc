"""Types to and from protobuf. Beside it only `announcement`, `envelope`, `judge`, `manifest`,
`peers`, `reach` and `rollout_codec` touch `*_pb2`."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from shoal_wire import compression
from shoal_wire.errors import RemoteError
from shoal_wire.halffloat import pack_halves, unpack_halves
from shoal_wire.limits import (
    DIGEST_BYTES,
    MAX_COMPLETIONS,
    MAX_COMPLETIONS_PER_BATCH,
    MAX_GROUPS_PER_BATCH,
    SCHEMA_MAJOR,
    SHORT_DIGEST_BYTES,
)
from shoal_wire.types import (
    Completion,
    Digest,
    FinishReason,
    InlineTask,
    PolicyInfo,
    RolloutBatch,
    RolloutGroup,
    SamplingParams,
    Task,
)
from shoal_wire.v1 import rollout_pb2 as pb
from shoal_wire.verdict import Reason

_FINISH_TO_PB = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
}
_FINISH_FROM_PB = {value: key for key, value in _FINISH_TO_PB.items()}


class PayloadError(RemoteError):
    """A payload that does not decode; `reason` is its row in the verdict table."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


def encode_batch(batch: RolloutBatch) -> bytes:
    """Return the compressed payload of `batch`, ready to be sealed."""
    return compression.compress(batch_to_bytes(batch))


def batch_to_bytes(batch: RolloutBatch) -> bytes:
    """Return the encoding of `batch` before compression: what `decode_batch` bounds."""
    message = pb.RolloutBatch(
        schema_major=SCHEMA_MAJOR,
        swarm_digest=batch.swarm_digest,
        sequence=batch.sequence,
        round=batch.round,
        created_ms=batch.created_ms,
        policy=policy_to_pb(batch.policy),
        sampling=sampling_to_pb(batch.sampling),
        groups=[group_to_pb(group) for group in batch.groups],
        previous_sequence=batch.previous_sequence,
    )
    for group, encoded in zip(batch.groups, message.groups, strict=True):
        group.note("known_bytes", encoded.ByteSize())
    return message.SerializeToString()


@dataclass(frozen=True, slots=True, eq=False)
class ParsedBatch:
    """A payload of which nothing was made yet: it says how much there is to be made."""

    message: pb.RolloutBatch
    num_completions: int

    @property
    def num_groups(self) -> int:
        """How many groups it has."""
        return len(self.message.groups)

    def num_logprobs(self) -> int:
        """Count log-probabilities; O(completions)."""
        groups = self.message.groups
        return sum(len(one.logprobs) for group in groups for one in group.completions) // 2


def parse_batch(payload: bytes, *, max_bytes: int) -> ParsedBatch:
    """Parse a compressed payload of at most `max_bytes` once decompressed; the first half of
    `decode_batch`, in C: tens of microseconds for as many kilobytes.

    Raises:
        PayloadError: with the reason.
    """
    try:
        message = pb.RolloutBatch.FromString(compression.decompress(payload, max_bytes=max_bytes))
    except compression.OversizeFrameError:
        raise PayloadError(Reason.OVERSIZE_PAYLOAD) from None
    except compression.CorruptFrameError:
        raise PayloadError(Reason.MALFORMED_PAYLOAD) from None
    except DecodeError:
        raise PayloadError(Reason.MALFORMED_PAYLOAD) from None
    if message.schema_major > SCHEMA_MAJOR:
        raise PayloadError(Reason.OTHER_VERSION)
    if message.schema_major != SCHEMA_MAJOR or len(message.swarm_digest) != DIGEST_BYTES:
        raise PayloadError(Reason.BAD_FIELD)
    if len(message.groups) > MAX_GROUPS_PER_BATCH:
        raise PayloadError(Reason.BAD_COUNT)
    num_completions = sum(len(group.completions) for group in message.groups)
    if num_completions > MAX_COMPLETIONS_PER_BATCH:
        raise PayloadError(Reason.BAD_COUNT)
    return ParsedBatch(message, num_completions)


def decode_batch(
    payload: bytes, *, max_bytes: int, parsed: ParsedBatch | None = None
) -> RolloutBatch:
    """Decode a compressed payload of at most `max_bytes` once decompressed; `parsed`, if it is.

    Structure only: lengths of digests, counts against the hard caps, known enum values. What a
    manifest allows is checked by `shoal_wire.rules`.

    Raises:
        PayloadError: with the reason.
    """
    message = (parsed or parse_batch(payload, max_bytes=max_bytes)).message
    return RolloutBatch(
        swarm_digest=Digest(message.swarm_digest),
        sequence=message.sequence,
        round=message.round,
        created_ms=message.created_ms,
        policy=policy_from_pb(message.policy),
        sampling=sampling_from_pb(message.sampling),
        groups=tuple(_sized_group(group) for group in message.groups),
        previous_sequence=message.previous_sequence,
    )


def _sized_group(message: pb.RolloutGroup) -> RolloutGroup:
    group = group_from_pb(message)
    group.note("known_bytes", message.ByteSize())
    return group


def policy_to_pb(policy: PolicyInfo) -> pb.PolicyInfo:
    """Return the protobuf form of `policy`."""
    return pb.PolicyInfo(
        model_name=policy.model_name,
        tokenizer_digest=policy.tokenizer_digest,
        policy_version=policy.policy_version,
    )


def policy_from_pb(message: pb.PolicyInfo) -> PolicyInfo:
    """Return the policy that `message` holds; raises PayloadError on a digest of odd length."""
    if len(message.tokenizer_digest) not in (0, SHORT_DIGEST_BYTES):
        raise PayloadError(Reason.BAD_FIELD)
    return PolicyInfo(
        model_name=message.model_name,
        tokenizer_digest=Digest(message.tokenizer_digest),
        policy_version=message.policy_version,
    )


def sampling_to_pb(sampling: SamplingParams) -> pb.SamplingParams:
    """Return the protobuf form of `sampling`."""
    return pb.SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_new_tokens=sampling.max_new_tokens,
    )


def sampling_from_pb(message: pb.SamplingParams) -> SamplingParams:
    """Return the sampling parameters that `message` holds."""
    return SamplingParams(
        temperature=message.temperature,
        top_p=message.top_p,
        top_k=message.top_k,
        max_new_tokens=message.max_new_tokens,
    )


def group_to_pb(group: RolloutGroup) -> pb.RolloutGroup:
    """Return the protobuf form of `group`."""
    return pb.RolloutGroup(
        task=_task_to_pb(group.task),
        completions=[_completion_to_pb(completion) for completion in group.completions],
    )


def group_from_pb(message: pb.RolloutGroup) -> RolloutGroup:
    """Return the group that `message` holds; raises PayloadError with the reason."""
    if len(message.completions) > MAX_COMPLETIONS:
        raise PayloadError(Reason.BAD_COUNT)
    return RolloutGroup(
        task=_task_from_pb(message.task),
        completions=tuple(_completion_from_pb(item) for item in message.completions),
    )


def _task_to_pb(task: Task) -> pb.Task:
    inline = None
    if task.inline is not None:
        inline = pb.InlineTask(question=task.inline.question, answer=task.inline.answer)
    return pb.Task(
        family=task.family,
        config_digest=task.config_digest,
        seed=task.seed,
        index=task.index,
        verifier=task.verifier,
        verifier_version=task.verifier_version,
        question_digest=task.question_digest,
        inline=inline,
    )


def _task_from_pb(message: pb.Task) -> Task:
    for digest in (message.config_digest, message.question_digest):
        if len(digest) != SHORT_DIGEST_BYTES:
            raise PayloadError(Reason.BAD_FIELD)
    inline = None
    if message.HasField("inline"):
        inline = InlineTask(question=message.inline.question, answer=message.inline.answer)
    return Task(
        family=message.family,
        config_digest=Digest(message.config_digest),
        seed=message.seed,
        index=message.index,
        verifier=message.verifier,
        verifier_version=message.verifier_version,
        question_digest=Digest(message.question_digest),
        inline=inline,
    )


def _completion_to_pb(completion: Completion) -> pb.Completion:
    return pb.Completion(
        text=completion.text,
        num_tokens=completion.num_tokens,
        finish_reason=_FINISH_TO_PB[completion.finish_reason],
        logprobs=b"" if completion.logprobs is None else pack_halves(completion.logprobs),
    )


def _completion_from_pb(message: pb.Completion) -> Completion:
    finish = _FINISH_FROM_PB.get(message.finish_reason)
    if finish is None:
        raise PayloadError(Reason.BAD_FIELD)
    try:
        logprobs = unpack_halves(message.logprobs) if message.logprobs else None
    except ValueError:
        raise PayloadError(Reason.BAD_FIELD) from None
    return Completion(
        text=message.text,
        num_tokens=message.num_tokens,
        finish_reason=finish,
        logprobs=logprobs,
    )


def group_to_bytes(group: RolloutGroup) -> bytes:
    """Return a group's uncompressed encoding."""
    return group_to_pb(group).SerializeToString()


def group_size(group: RolloutGroup) -> int:
    """Return the length of a group's uncompressed encoding: what the buffer counts.

    A batch's codec knows it; only a group that was in none is encoded for it.
    """
    try:
        return group.known_bytes
    except AttributeError:
        size = group_to_pb(group).ByteSize()
        group.note("known_bytes", size)
        return size

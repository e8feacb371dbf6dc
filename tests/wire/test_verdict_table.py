"""One row per way in which a batch can be judged, each one mutation away from a valid batch.

Expected outcome and weight stand here in full, so that neither can change by accident.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from shoal_wire.codec import PayloadError, decode_batch, encode_batch
from shoal_wire.compression import compress
from shoal_wire.envelope import EnvelopeError, open_envelope, public_key_message
from shoal_wire.limits import (
    MAX_COMPLETIONS,
    MAX_COMPLETIONS_PER_BATCH,
    MAX_GROUPS_PER_BATCH,
    MAX_INDEX,
    MAX_NAME_BYTES,
    MAX_ROUND,
    MAX_SEED,
    MAX_SEQUENCE,
    MIN_TRAINING_SEED,
)
from shoal_wire.manifest import Manifest
from shoal_wire.rules import check_batch, check_completion
from shoal_wire.types import (
    Completion,
    Digest,
    InlineTask,
    PolicyInfo,
    SamplingParams,
)
from shoal_wire.v1 import rollout_pb2 as pb
from shoal_wire.verdict import Outcome, Reason, verdict
from tests.wire import wire_samples as sample

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

REJECT, IGNORE, ACCEPT = Outcome.REJECT, Outcome.IGNORE, Outcome.ACCEPT

TABLE: dict[Reason, tuple[Outcome, bool]] = {
    Reason.VALID: (ACCEPT, False),
    Reason.OVERSIZE_MESSAGE: (REJECT, False),
    Reason.UNKNOWN_TOPIC: (REJECT, False),
    Reason.MALFORMED_ENVELOPE: (REJECT, False),
    Reason.NOT_CANONICAL: (REJECT, False),
    Reason.WRONG_PAYLOAD_TYPE: (REJECT, False),
    Reason.MALFORMED_PAYLOAD: (REJECT, False),
    Reason.CORRUPT_COMPRESSION: (REJECT, False),
    Reason.OVERSIZE_PAYLOAD: (REJECT, True),
    Reason.KEY_NOT_ED25519: (REJECT, True),
    Reason.WEAK_KEY: (REJECT, True),
    Reason.BAD_SIGNATURE: (REJECT, True),
    Reason.SIGNER_NOT_SENDER: (REJECT, True),
    Reason.CLAIMS_TO_BE_ME: (REJECT, False),
    Reason.WRONG_SWARM: (REJECT, False),
    Reason.EQUIVOCATION: (REJECT, False),
    Reason.FAR_FUTURE: (REJECT, False),
    Reason.QUESTION_MISMATCH: (REJECT, False),
    Reason.NO_GROUPS: (REJECT, False),
    Reason.TOO_MANY_GROUPS: (REJECT, False),
    Reason.NO_COMPLETIONS: (REJECT, False),
    Reason.TOO_MANY_COMPLETIONS: (REJECT, False),
    Reason.EMPTY_TEXT: (REJECT, False),
    Reason.OVERSIZE_TEXT: (REJECT, False),
    Reason.FORBIDDEN_CHARACTER: (REJECT, False),
    Reason.BAD_NUMBER: (REJECT, False),
    Reason.BAD_FIELD: (REJECT, False),
    Reason.INLINE_NOT_ALLOWED: (REJECT, False),
    Reason.RESERVED_TASK: (REJECT, False),
    Reason.BAD_ANNOUNCEMENT: (REJECT, True),
    Reason.UNFETCHABLE: (REJECT, False),
    Reason.MALFORMED_REQUEST: (REJECT, False),
    Reason.REQUEST_FLOOD: (REJECT, False),
    Reason.MALFORMED_ANSWER: (REJECT, False),
    Reason.WRONG_OBJECT: (REJECT, True),
    Reason.NEWER_SCHEMA: (IGNORE, False),
    Reason.DUPLICATE: (IGNORE, False),
    Reason.TOO_OLD: (IGNORE, False),
    Reason.NEAR_FUTURE: (IGNORE, False),
    Reason.UNKNOWN_FAMILY: (IGNORE, False),
    Reason.OTHER_VERIFIER_VERSION: (IGNORE, False),
    Reason.OVER_QUOTA: (IGNORE, False),
    Reason.LEFT_TOPIC: (IGNORE, False),
    Reason.INTAKE_FULL: (IGNORE, False),
    Reason.WORKER_UNAVAILABLE: (IGNORE, False),
    Reason.TOO_DEAR: (IGNORE, False),
    Reason.VALIDATOR_TIMEOUT: (IGNORE, False),
    Reason.VALIDATOR_FAULT: (IGNORE, False),
}

IN_THE_NODE = {
    # These need state, the sender or the task worker: the node's intake tests cover them.
    Reason.OVERSIZE_MESSAGE,
    Reason.UNKNOWN_TOPIC,
    Reason.SIGNER_NOT_SENDER,
    Reason.CLAIMS_TO_BE_ME,
    Reason.EQUIVOCATION,
    Reason.QUESTION_MISMATCH,
    Reason.DUPLICATE,
    Reason.OVER_QUOTA,
    Reason.LEFT_TOPIC,
    Reason.BAD_ANNOUNCEMENT,
    Reason.UNFETCHABLE,
    Reason.MALFORMED_REQUEST,
    Reason.REQUEST_FLOOD,
    Reason.MALFORMED_ANSWER,
    Reason.WRONG_OBJECT,
    Reason.INTAKE_FULL,
    Reason.WORKER_UNAVAILABLE,
    Reason.TOO_DEAR,
    Reason.VALIDATOR_TIMEOUT,
    Reason.VALIDATOR_FAULT,
}


INLINE_SWARM = sample.swarm(allow_inline_tasks=True)


def judge(raw: bytes, manifest: Manifest | None = None) -> Reason:
    """Judge envelope bytes as far as pure code can."""
    manifest = manifest or sample.swarm()
    try:
        envelope = open_envelope(raw)
        batch = decode_batch(envelope.payload, max_bytes=manifest.rules.max_batch_bytes)
    except (EnvelopeError, PayloadError) as error:
        return error.reason
    rules = sample.batch_rules(manifest)
    return check_batch(batch, rules, now_ms=sample.NOW_MS) or Reason.VALID


# Each mutation returns envelope bytes.
Mutation = Callable[[], bytes]


FULL_GROUP = sample.group(completions=(sample.completion(),) * 64)


def header(**changes: object) -> Mutation:
    return lambda: sample.sealed(encode_batch(sample.batch(**changes)))


def policy(**changes: object) -> Mutation:
    good: PolicyInfo = sample.batch().policy
    return header(policy=replace(good, **changes))  # type: ignore[arg-type]


def sampling(**changes: object) -> Mutation:
    good: SamplingParams = sample.batch().sampling
    return header(sampling=replace(good, **changes))  # type: ignore[arg-type]


def task(**changes: object) -> Mutation:
    return header(groups=(sample.group(sample.task(**changes)),))


def answer(text: str = "42", **changes: object) -> Mutation:
    answers = (sample.completion(), sample.completion(text, **changes))
    return header(groups=(sample.group(completions=answers),))


def answers(count: int) -> Mutation:
    return header(groups=(sample.group(completions=(sample.completion(),) * count),))


def inline(**changes: object) -> Mutation:
    """An inline task in the swarm that allows them; changes are of the task."""
    changes = {"inline": InlineTask(question="Why?", answer="So.")} | changes
    groups = (sample.group(sample.task(**changes)),)
    return header(groups=groups, swarm_digest=INLINE_SWARM.digest)


def inline_text(*, question: str = "Why?", answer: str = "So.") -> Mutation:
    return inline(inline=InlineTask(question=question, answer=answer))


def message(change: Callable[[pb.RolloutBatch], object]) -> Mutation:
    def mutate() -> bytes:
        made = sample.batch_message()
        change(made)
        return sample.sealed(compress(made.SerializeToString()))

    return mutate


def payload(change: Callable[[bytes], bytes]) -> Mutation:
    return lambda: sample.sealed(change(encode_batch(sample.batch())))


def envelope(change: Callable[[pb.Envelope], object]) -> Mutation:
    def mutate() -> bytes:
        made = pb.Envelope.FromString(sample.sealed())
        change(made)
        return made.SerializeToString()

    return mutate


def put(**fields: object) -> Callable[[object], None]:
    def change(target: object) -> None:
        for name, value in fields.items():
            setattr(target, name, value)

    return change


def first_task(**fields: object) -> Mutation:
    return message(lambda made: put(**fields)(made.groups[0].task))


def first_completion(**fields: object) -> Mutation:
    return message(lambda made: put(**fields)(made.groups[0].completions[0]))


def flip(data: bytes, position: int = 0) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


HALF_NAN, HALF_INF = b"\x00\x7e", b"\x00\x7c"
LONE_SURROGATE = b"\xed\xa0\x80"
SECP_KEY = b"\x08\x02\x12\x21" + bytes(33)

ROWS: list[tuple[str, Reason, Mutation]] = [
    ("as it is", Reason.VALID, sample.sealed),
    ("all answers equal", Reason.VALID, answers(2)),
    ("other model", Reason.VALID, policy(model_name="some/other-model")),
    ("other tokenizer", Reason.VALID, policy(tokenizer_digest=Digest(b"o" * 16))),
    ("unknown tokenizer", Reason.VALID, policy(tokenizer_digest=Digest(b""))),
    ("greedy", Reason.VALID, sampling(temperature=0.0)),
    ("log-probs", Reason.VALID, answer(num_tokens=2, logprobs=(-0.5, 0.0))),
    ("age at the limit", Reason.VALID, header(created_ms=sample.NOW_MS - HOUR_MS)),
    ("clock at the limit", Reason.VALID, header(created_ms=sample.NOW_MS + 120_000)),
    ("largest numbers", Reason.VALID, header(sequence=MAX_SEQUENCE - 1, round=MAX_ROUND - 1)),
    ("largest coordinates", Reason.VALID, task(seed=MAX_SEED - 1, index=MAX_INDEX - 1)),
    ("not protobuf", Reason.MALFORMED_ENVELOPE, lambda: b"\xff" * 40),
    ("cut short", Reason.MALFORMED_ENVELOPE, lambda: sample.sealed()[:-1]),
    ("trailing byte", Reason.MALFORMED_ENVELOPE, lambda: sample.sealed() + b"\x01"),
    (
        "unknown field in the envelope",
        Reason.NOT_CANONICAL,
        lambda: sample.sealed() + b"\x4a\x01x",
    ),
    ("nothing", Reason.WRONG_PAYLOAD_TYPE, lambda: b""),
    ("other type", Reason.WRONG_PAYLOAD_TYPE, lambda: sample.sealed(payload_type=b"/x/1")),
    ("no type", Reason.WRONG_PAYLOAD_TYPE, envelope(put(payload_type=b""))),
    ("secp256k1 key", Reason.KEY_NOT_ED25519, envelope(put(public_key=SECP_KEY))),
    ("no key", Reason.KEY_NOT_ED25519, envelope(put(public_key=b""))),
    ("short key", Reason.KEY_NOT_ED25519, envelope(put(public_key=public_key_message(b"k" * 31)))),
    (
        "key with extra field",
        Reason.KEY_NOT_ED25519,
        envelope(put(public_key=public_key_message(sample.PUBLIC_1) + b"\x18\x01")),
    ),
    ("zero key", Reason.WEAK_KEY, envelope(put(public_key=public_key_message(bytes(32))))),
    ("no signature", Reason.BAD_SIGNATURE, envelope(put(signature=b""))),
    ("long signature", Reason.BAD_SIGNATURE, envelope(put(signature=bytes(65)))),
    (
        "flipped signature",
        Reason.BAD_SIGNATURE,
        envelope(lambda made: put(signature=flip(made.signature, 5))(made)),
    ),
    (
        "flipped payload",
        Reason.BAD_SIGNATURE,
        envelope(lambda made: put(payload=flip(made.payload, 9))(made)),
    ),
    (
        "key of another",
        Reason.BAD_SIGNATURE,
        envelope(put(public_key=public_key_message(sample.PUBLIC_2))),
    ),
    (
        "key that is no point",
        Reason.BAD_SIGNATURE,
        envelope(put(public_key=public_key_message(b"\x02" + bytes(31)))),
    ),
    (
        "key beyond the field",
        Reason.WEAK_KEY,
        envelope(put(public_key=public_key_message(b"\xff" * 32))),
    ),
    ("empty payload", Reason.CORRUPT_COMPRESSION, lambda: sample.sealed(b"")),
    ("not zstd", Reason.CORRUPT_COMPRESSION, payload(flip)),
    ("zstd cut short", Reason.CORRUPT_COMPRESSION, payload(lambda data: data[:-1])),
    ("bytes after zstd", Reason.CORRUPT_COMPRESSION, payload(lambda data: data + b"\0")),
    ("two frames", Reason.CORRUPT_COMPRESSION, payload(lambda data: data + data)),
    ("frame of nothing", Reason.CORRUPT_COMPRESSION, payload(lambda _: compress(b""))),
    ("bomb", Reason.OVERSIZE_PAYLOAD, payload(lambda _: compress(bytes(2_097_153)))),
    ("not a batch", Reason.MALFORMED_PAYLOAD, payload(lambda _: compress(b"\xff" * 9))),
    (
        "lone surrogate on the wire",
        Reason.MALFORMED_PAYLOAD,
        payload(
            lambda _: compress(
                sample.batch_message(
                    sample.batch(policy=replace(sample.batch().policy, model_name="abc"))
                )
                .SerializeToString()
                .replace(b"abc", LONE_SURROGATE)
            )
        ),
    ),
    ("newer schema", Reason.NEWER_SCHEMA, message(put(schema_major=2))),
    ("no schema", Reason.BAD_FIELD, message(put(schema_major=0))),
    ("short swarm digest", Reason.BAD_FIELD, message(put(swarm_digest=b"s" * 31))),
    ("odd tokenizer digest", Reason.BAD_FIELD, policy(tokenizer_digest=Digest(b"t" * 15))),
    ("odd config digest", Reason.BAD_FIELD, first_task(config_digest=b"c" * 17)),
    ("no question digest", Reason.BAD_FIELD, first_task(question_digest=b"")),
    ("no finish reason", Reason.BAD_FIELD, first_completion(finish_reason=0)),
    ("unknown finish reason", Reason.BAD_FIELD, first_completion(finish_reason=9)),
    ("long model name", Reason.BAD_FIELD, policy(model_name="é" * (MAX_NAME_BYTES // 2 + 1))),
    ("other swarm", Reason.WRONG_SWARM, header(swarm_digest=Digest(bytes(32)))),
    ("too old", Reason.TOO_OLD, header(created_ms=sample.NOW_MS - HOUR_MS - 1)),
    ("no time", Reason.TOO_OLD, header(created_ms=0)),
    ("fast clock", Reason.NEAR_FUTURE, header(created_ms=sample.NOW_MS + 120_001)),
    ("a day ahead", Reason.NEAR_FUTURE, header(created_ms=sample.NOW_MS + DAY_MS)),
    ("over a day ahead", Reason.FAR_FUTURE, header(created_ms=sample.NOW_MS + DAY_MS + 1)),
    ("end of time", Reason.FAR_FUTURE, header(created_ms=2**64 - 1)),
    ("sequence 0", Reason.BAD_NUMBER, header(sequence=0)),
    ("sequence too large", Reason.BAD_NUMBER, header(sequence=MAX_SEQUENCE)),
    ("round too large", Reason.BAD_NUMBER, header(round=MAX_ROUND)),
    ("version too large", Reason.BAD_NUMBER, policy(policy_version=MAX_ROUND)),
    ("temperature NaN", Reason.BAD_NUMBER, sampling(temperature=math.nan)),
    ("temperature inf", Reason.BAD_NUMBER, sampling(temperature=math.inf)),
    ("temperature negative", Reason.BAD_NUMBER, sampling(temperature=-1.0)),
    ("top_p NaN", Reason.BAD_NUMBER, sampling(top_p=math.nan)),
    ("top_p over 1", Reason.BAD_NUMBER, sampling(top_p=1.5)),
    ("seed too large", Reason.BAD_NUMBER, task(seed=MAX_SEED)),
    ("index too large", Reason.BAD_NUMBER, task(index=MAX_INDEX)),
    ("no tokens", Reason.BAD_NUMBER, answer(num_tokens=0)),
    ("more tokens than text", Reason.BAD_NUMBER, answer("42", num_tokens=17)),
    ("log-prob NaN", Reason.BAD_NUMBER, first_completion(logprobs=HALF_NAN * 3)),
    ("log-prob inf", Reason.BAD_NUMBER, first_completion(logprobs=HALF_INF * 3)),
    ("log-probs of odd length", Reason.BAD_NUMBER, first_completion(logprobs=bytes(5))),
    ("log-prob above 0", Reason.BAD_NUMBER, answer(num_tokens=1, logprobs=(0.5,))),
    ("log-prob too few", Reason.BAD_NUMBER, answer(num_tokens=3, logprobs=(-1.0, -1.0))),
    ("no groups", Reason.NO_GROUPS, header(groups=())),
    (
        "too many groups",
        Reason.TOO_MANY_GROUPS,
        header(groups=(sample.group(),) * (MAX_GROUPS_PER_BATCH + 1)),
    ),
    ("no completions", Reason.NO_COMPLETIONS, answers(0)),
    ("fewer than the swarm's least", Reason.NO_COMPLETIONS, answers(1)),
    ("more than the swarm's most", Reason.TOO_MANY_COMPLETIONS, answers(65)),
    ("more than any swarm's", Reason.TOO_MANY_COMPLETIONS, answers(MAX_COMPLETIONS + 1)),
    (
        "more in all than a batch may have",
        Reason.TOO_MANY_COMPLETIONS,
        header(groups=(FULL_GROUP,) * (MAX_COMPLETIONS_PER_BATCH // 64 + 1)),
    ),
    ("empty text", Reason.EMPTY_TEXT, answer("")),
    ("long text", Reason.OVERSIZE_TEXT, answer("é" * 16_385, num_tokens=9)),
    ("NUL in text", Reason.FORBIDDEN_CHARACTER, answer("4\0002")),
    ("NUL in model", Reason.FORBIDDEN_CHARACTER, policy(model_name="a\0b")),
    (
        "inline",
        Reason.INLINE_NOT_ALLOWED,
        task(inline=InlineTask(question="Why?", answer="So.")),
    ),
    ("lowest seed to train on", Reason.VALID, task(seed=MIN_TRAINING_SEED, index=0)),
    ("a judge's seed", Reason.RESERVED_TASK, task(seed=MIN_TRAINING_SEED - 1)),
    ("a held-out seed", Reason.RESERVED_TASK, task(seed=0)),
    ("a held-out seed far on", Reason.RESERVED_TASK, task(seed=0, index=MIN_TRAINING_SEED)),
    ("unknown family", Reason.UNKNOWN_FAMILY, task(family="products")),
    ("other config", Reason.UNKNOWN_FAMILY, task(config_digest=Digest(b"c" * 16))),
    ("other verifier", Reason.UNKNOWN_FAMILY, task(verifier="mine")),
    ("other release", Reason.OTHER_VERIFIER_VERSION, task(verifier_version="0.1.26")),
]


@pytest.mark.parametrize(("reason", "mutate"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS])
def test_a_batch_gets_the_verdict_of_its_row(reason: Reason, mutate: Mutation) -> None:
    judged = verdict(judge(mutate()))
    outcome, heavy = TABLE[reason]
    assert (judged.reason, judged.outcome, judged.heavy) == (reason, outcome, heavy)


INLINE_ROWS: list[tuple[str, Reason, Mutation]] = [
    ("as it is", Reason.VALID, inline()),
    ("long question", Reason.OVERSIZE_TEXT, inline_text(question="q" * 65_537)),
    ("long answer", Reason.OVERSIZE_TEXT, inline_text(answer="a" * 65_537)),
    ("NUL in answer", Reason.FORBIDDEN_CHARACTER, inline_text(answer="\0")),
    ("long family name", Reason.BAD_FIELD, inline(family="f" * (MAX_NAME_BYTES + 1))),
    ("NUL in verifier", Reason.FORBIDDEN_CHARACTER, inline(verifier="v\0")),
    ("seed too large", Reason.BAD_NUMBER, inline(seed=MAX_SEED)),
    ("a small seed", Reason.VALID, inline(seed=0)),
]


@pytest.mark.parametrize(
    ("reason", "mutate"), [row[1:] for row in INLINE_ROWS], ids=[r[0] for r in INLINE_ROWS]
)
def test_a_swarm_that_allows_inline_tasks_bounds_them(reason: Reason, mutate: Mutation) -> None:
    assert judge(mutate(), INLINE_SWARM) is reason


def test_every_reason_has_a_row_here_or_in_the_nodes_tests() -> None:
    here = {row[1] for row in ROWS}
    assert here | IN_THE_NODE == set(Reason)
    assert not here & IN_THE_NODE


def test_every_reason_has_the_outcome_and_weight_of_the_table() -> None:
    actual = {reason: (verdict(reason).outcome, verdict(reason).heavy) for reason in Reason}
    assert actual == TABLE


def test_a_reject_in_a_later_group_outweighs_an_ignore_in_an_earlier_one() -> None:
    groups = (
        sample.group(sample.task(family="products")),
        sample.group(completions=(sample.completion(""),) * 2),
    )
    assert judge(header(groups=groups)()) is Reason.EMPTY_TEXT
    assert judge(header(groups=(groups[0], sample.group()))()) is Reason.UNKNOWN_FAMILY
    reserved = sample.group(sample.task(seed=0))
    assert judge(header(groups=(groups[0], sample.group(), reserved))()) is Reason.RESERVED_TASK


def test_a_publisher_is_told_of_a_lone_surrogate_before_it_shares() -> None:
    made: Completion = sample.completion("\ud800")
    assert check_completion(made, sample.swarm().rules) is Reason.FORBIDDEN_CHARACTER

"""Envelopes that are each one change away from a valid one, and what is found with them.

`tests/wire/test_verdicts.py` judges all of them; `tests/p2p/hostile/test_verdict_rows.py` says the
first of each reason to a real node over libp2p.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from shoal_wire.codec import batch_to_bytes, compress, encode_batch
from shoal_wire.envelope import public_key_message
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
from shoal_wire.manifest import SwarmRules
from shoal_wire.types import Digest, InlineTask, RolloutGroup
from shoal_wire.v1 import rollout_pb2 as pb
from shoal_wire.verdict import Reason
from tests.support import factories as make

DAY_MS = 24 * 3_600_000

Mutation = Callable[[make.Author], bytes]


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One change, and the reason that it gets."""

    name: str
    reason: Reason
    made_by: Mutation


# How a valid envelope is changed


def header(**changes: Any) -> Mutation:
    return lambda author: author.envelope(author.batch(**changes))


def policy(**changes: Any) -> Mutation:
    return header(policy=replace(make.POLICY, **changes))


def sampling(**changes: Any) -> Mutation:
    return header(sampling=replace(make.SAMPLING, **changes))


def groups(*made: RolloutGroup) -> Mutation:
    return header(groups=made)


def task(**changes: Any) -> Mutation:
    return groups(make.group(of=make.task(**changes)))


def answer(text: str = "42", **changes: Any) -> Mutation:
    answers = (make.completion(), make.completion(text, **changes))
    return groups(RolloutGroup(task=make.task(), completions=answers))


def answers(count: int) -> Mutation:
    return groups(make.group(texts=["7"] * count))


def at(offset_ms: int) -> Mutation:
    """Dated so long after now."""
    return lambda author: header(created_ms=author.now_ms + offset_ms)(author)


def aged(excess_ms: int) -> Mutation:
    """Older than the swarm keeps, by `excess_ms`."""
    return lambda author: at(-_rules(author).max_age_seconds * 1000 - excess_ms)(author)


def ahead(excess_ms: int) -> Mutation:
    """Dated further ahead than the swarm takes, by `excess_ms`."""
    return lambda author: at(_rules(author).max_future_seconds * 1000 + excess_ms)(author)


def _rules(author: make.Author) -> SwarmRules:
    return author.manifest.rules


def inline(**changes: Any) -> Mutation:
    """An inline task; changes are of the task."""
    return task(**{"inline": InlineTask(question="Why?", answer="So."), **changes})


def inline_text(*, question: str = "Why?", answer: str = "So.") -> Mutation:
    return inline(inline=InlineTask(question=question, answer=answer))


def payload(change: Callable[[bytes], bytes]) -> Mutation:
    """Signed as it is, whatever `change` makes of a valid payload."""
    return lambda author: author.seal(change(encode_batch(author.batch())))


def message(change: Callable[[pb.RolloutBatch], object]) -> Mutation:
    def mutate(author: make.Author) -> bytes:
        made = pb.RolloutBatch.FromString(batch_to_bytes(author.batch()))
        change(made)
        return author.seal(compress(made.SerializeToString()))

    return mutate


def envelope(change: Callable[[pb.Envelope], object]) -> Mutation:
    def mutate(author: make.Author) -> bytes:
        made = pb.Envelope.FromString(author.envelope())
        change(made)
        return made.SerializeToString()

    return mutate


def put(**fields: object) -> Callable[[object], None]:
    def change(target: object) -> None:
        for name, value in fields.items():
            setattr(target, name, value)

    return change


def key(raw: bytes) -> Mutation:
    return envelope(put(public_key=public_key_message(raw)))


def first_task(**fields: object) -> Mutation:
    return message(lambda made: put(**fields)(made.groups[0].task))


def first_completion(**fields: object) -> Mutation:
    return message(lambda made: put(**fields)(made.groups[0].completions[0]))


def flip(data: bytes, position: int = 0) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def _half_a_character(author: make.Author) -> bytes:
    named = author.batch(policy=replace(make.POLICY, model_name="abc"))
    return author.seal(compress(batch_to_bytes(named).replace(b"abc", b"\xed\xa0\x80")))


def _of_another_key(author: make.Author) -> bytes:
    other = make.fresh_identity().public_key_bytes
    return key(other)(author)


HALF_NAN, HALF_INF = b"\x00\x7e", b"\x00\x7c"
SECP_KEY = b"\x08\x02\x12\x21" + bytes(33)
FULL_GROUP = make.group(texts=["7"] * 64)
STRANGE = make.task(family="of my own")

# The first row of a reason has to be short enough for gossip.
ROWS = [
    VerdictRow(*row)
    for row in (
        ("as it is", Reason.VALID, header()),
        ("all answers equal", Reason.VALID, groups(make.group(texts=("7", "7")))),
        ("other model", Reason.VALID, policy(model_name="some/other-model")),
        ("other tokenizer", Reason.VALID, policy(tokenizer_digest=Digest(b"o" * 16))),
        ("unknown tokenizer", Reason.VALID, policy(tokenizer_digest=Digest(b""))),
        ("greedy", Reason.VALID, sampling(temperature=0.0)),
        ("log-probs", Reason.VALID, answer(num_tokens=2, logprobs=(-0.5, 0.0))),
        ("age at the limit", Reason.VALID, aged(0)),
        ("clock at the limit", Reason.VALID, ahead(0)),
        ("largest numbers", Reason.VALID, header(sequence=MAX_SEQUENCE - 1, round=MAX_ROUND - 1)),
        ("largest coordinates", Reason.VALID, task(seed=MAX_SEED - 1, index=MAX_INDEX - 1)),
        ("lowest seed to train on", Reason.VALID, task(seed=MIN_TRAINING_SEED, index=0)),
        ("not protobuf", Reason.MALFORMED_ENVELOPE, lambda _: b"\xff" * 40),
        ("cut short", Reason.MALFORMED_ENVELOPE, lambda author: author.envelope()[:-1]),
        ("trailing byte", Reason.MALFORMED_ENVELOPE, lambda author: author.envelope() + b"\x01"),
        ("nothing", Reason.MALFORMED_ENVELOPE, lambda _: b""),
        ("other type", Reason.MALFORMED_ENVELOPE, envelope(put(payload_type=b"/x/1"))),
        ("no type", Reason.MALFORMED_ENVELOPE, envelope(put(payload_type=b""))),
        ("unknown field", Reason.NOT_CANONICAL, lambda author: author.envelope() + b"\x4a\x01x"),
        ("zero key", Reason.WEAK_KEY, key(bytes(32))),
        ("key beyond the field", Reason.WEAK_KEY, key(b"\xff" * 32)),
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
        ("key of another", Reason.BAD_SIGNATURE, _of_another_key),
        ("key that is no point", Reason.BAD_SIGNATURE, key(b"\x02" + bytes(31))),
        ("secp256k1 key", Reason.BAD_SIGNATURE, envelope(put(public_key=SECP_KEY))),
        ("no key", Reason.BAD_SIGNATURE, envelope(put(public_key=b""))),
        ("short key", Reason.BAD_SIGNATURE, key(b"k" * 31)),
        (
            "key with extra field",
            Reason.BAD_SIGNATURE,
            envelope(lambda made: put(public_key=made.public_key + b"\x18\x01")(made)),
        ),
        ("bomb", Reason.OVERSIZE_PAYLOAD, payload(lambda _: compress(bytes((8 << 20) + 1)))),
        ("not a batch", Reason.MALFORMED_PAYLOAD, payload(lambda _: compress(b"\xff" * 9))),
        ("half a character", Reason.MALFORMED_PAYLOAD, _half_a_character),
        ("empty payload", Reason.MALFORMED_PAYLOAD, payload(lambda _: b"")),
        ("not zstd", Reason.MALFORMED_PAYLOAD, payload(flip)),
        ("zstd cut short", Reason.MALFORMED_PAYLOAD, payload(lambda data: data[:-1])),
        ("bytes after zstd", Reason.MALFORMED_PAYLOAD, payload(lambda data: data + b"\0")),
        ("two frames", Reason.MALFORMED_PAYLOAD, payload(lambda data: data + data)),
        ("frame of nothing", Reason.MALFORMED_PAYLOAD, payload(lambda _: compress(b""))),
        ("newer schema", Reason.OTHER_VERSION, message(put(schema_major=3))),
        ("other release", Reason.OTHER_VERSION, task(verifier_version="0.1.26")),
        ("no schema", Reason.BAD_FIELD, message(put(schema_major=0))),
        ("short swarm digest", Reason.BAD_FIELD, message(put(swarm_digest=b"s" * 31))),
        ("odd tokenizer digest", Reason.BAD_FIELD, policy(tokenizer_digest=Digest(b"t" * 15))),
        ("odd config digest", Reason.BAD_FIELD, first_task(config_digest=b"c" * 17)),
        ("no question digest", Reason.BAD_FIELD, first_task(question_digest=b"")),
        ("no finish reason", Reason.BAD_FIELD, first_completion(finish_reason=0)),
        ("unknown finish reason", Reason.BAD_FIELD, first_completion(finish_reason=9)),
        ("long model name", Reason.BAD_FIELD, policy(model_name="é" * (MAX_NAME_BYTES // 2 + 1))),
        ("NUL in model", Reason.BAD_FIELD, policy(model_name="a\0b")),
        ("sequence 0", Reason.BAD_FIELD, header(sequence=0)),
        ("sequence too large", Reason.BAD_FIELD, header(sequence=MAX_SEQUENCE)),
        ("round too large", Reason.BAD_FIELD, header(round=MAX_ROUND)),
        ("version too large", Reason.BAD_FIELD, policy(policy_version=MAX_ROUND)),
        ("temperature NaN", Reason.BAD_FIELD, sampling(temperature=math.nan)),
        ("temperature inf", Reason.BAD_FIELD, sampling(temperature=math.inf)),
        ("temperature negative", Reason.BAD_FIELD, sampling(temperature=-1.0)),
        ("top_p NaN", Reason.BAD_FIELD, sampling(top_p=math.nan)),
        ("top_p over 1", Reason.BAD_FIELD, sampling(top_p=1.5)),
        ("seed too large", Reason.BAD_FIELD, task(seed=MAX_SEED)),
        ("index too large", Reason.BAD_FIELD, task(index=MAX_INDEX)),
        ("log-probs of odd length", Reason.BAD_FIELD, first_completion(logprobs=bytes(5))),
        ("inline", Reason.BAD_FIELD, inline()),
        ("other swarm", Reason.WRONG_SWARM, header(swarm_digest=Digest(bytes(32)))),
        ("too old", Reason.TOO_OLD, aged(1)),
        ("no time", Reason.TOO_OLD, header(created_ms=0)),
        ("a day ahead", Reason.NEAR_FUTURE, at(DAY_MS)),
        ("fast clock", Reason.NEAR_FUTURE, ahead(1)),
        ("end of time", Reason.FAR_FUTURE, header(created_ms=2**64 - 1)),
        ("over a day ahead", Reason.FAR_FUTURE, at(DAY_MS + 1)),
        ("no groups", Reason.BAD_COUNT, groups()),
        ("no completions", Reason.BAD_COUNT, answers(0)),
        ("fewer than the swarm's least", Reason.BAD_COUNT, answers(1)),
        ("more than the swarm's most", Reason.BAD_COUNT, answers(65)),
        ("more than any swarm's", Reason.BAD_COUNT, answers(MAX_COMPLETIONS + 1)),
        (
            "more in all than a batch may have",
            Reason.BAD_COUNT,
            groups(*[FULL_GROUP] * (MAX_COMPLETIONS_PER_BATCH // 64 + 1)),
        ),
        ("too many groups", Reason.BAD_COUNT, groups(*[make.group()] * (MAX_GROUPS_PER_BATCH + 1))),
        ("NUL in text", Reason.BAD_COMPLETION, answer("4\0002")),
        ("empty text", Reason.BAD_COMPLETION, answer("")),
        ("long text", Reason.BAD_COMPLETION, answer("é" * 16_385, num_tokens=9)),
        ("no tokens", Reason.BAD_COMPLETION, answer(num_tokens=0)),
        ("more tokens than text", Reason.BAD_COMPLETION, answer("42", num_tokens=17)),
        ("log-prob NaN", Reason.BAD_FIELD, first_completion(logprobs=HALF_NAN * 2)),
        ("log-prob inf", Reason.BAD_FIELD, first_completion(logprobs=HALF_INF * 2)),
        ("log-prob above 0", Reason.BAD_COMPLETION, answer(num_tokens=1, logprobs=(0.5,))),
        ("log-prob too few", Reason.BAD_COMPLETION, answer(num_tokens=3, logprobs=(-1.0, -1.0))),
        ("a judge's seed", Reason.RESERVED_TASK, task(seed=MIN_TRAINING_SEED - 1)),
        ("a held-out seed", Reason.RESERVED_TASK, task(seed=0)),
        ("a held-out seed far on", Reason.RESERVED_TASK, task(seed=0, index=MIN_TRAINING_SEED)),
        ("unknown family", Reason.UNKNOWN_FAMILY, task(family="products")),
        ("other config", Reason.UNKNOWN_FAMILY, task(config_digest=Digest(b"c" * 16))),
        ("other verifier", Reason.UNKNOWN_FAMILY, task(verifier="mine")),
        (
            "a reject after an ignore",
            Reason.BAD_COMPLETION,
            groups(make.group(of=STRANGE), make.group(texts=("", ""))),
        ),
        (
            "an ignore before what is valid",
            Reason.UNKNOWN_FAMILY,
            groups(make.group(of=STRANGE), make.group()),
        ),
        (
            "a reserved seed after an ignore",
            Reason.RESERVED_TASK,
            groups(make.group(of=STRANGE), make.group(), make.group(of=make.task(seed=0))),
        ),
    )
]

INLINE_ROWS = [
    VerdictRow(*row)
    for row in (
        ("as it is", Reason.VALID, inline()),
        ("long question", Reason.BAD_FIELD, inline_text(question="q" * 65_537)),
        ("long answer", Reason.BAD_FIELD, inline_text(answer="a" * 65_537)),
        ("NUL in answer", Reason.BAD_FIELD, inline_text(answer="\0")),
        ("long family name", Reason.BAD_FIELD, inline(family="f" * (MAX_NAME_BYTES + 1))),
        ("NUL in verifier", Reason.BAD_FIELD, inline(verifier="v\0")),
        ("seed too large", Reason.BAD_FIELD, inline(seed=MAX_SEED)),
        ("a small seed", Reason.VALID, inline(seed=0)),
    )
]
"""In a swarm that allows inline tasks."""

NEED_THE_NODE = frozenset(
    {
        Reason.OVERSIZE_MESSAGE,
        Reason.SIGNER_NOT_SENDER,
        Reason.CLAIMS_TO_BE_ME,
        Reason.EQUIVOCATION,
        Reason.QUESTION_MISMATCH,
        Reason.DUPLICATE,
        Reason.OVER_QUOTA,
        Reason.LEFT_TOPIC,
        Reason.BAD_ANNOUNCEMENT,
        Reason.UNFETCHABLE,
        Reason.BAD_REQUEST,
        Reason.MALFORMED_ANSWER,
        Reason.WRONG_OBJECT,
        Reason.BUSY,
        Reason.WORKER_UNAVAILABLE,
        Reason.COST_LIMIT,
        Reason.VALIDATOR_FAULT,
    }
)
"""Need state, the sender or the task worker: tests of intake, fetching and gossip give them."""

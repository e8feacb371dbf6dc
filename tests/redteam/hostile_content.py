"""Hostile content of envelopes, gossip messages and announcements.

Everything is signed by some key, and wrong in any part or in none. Honest peers' signed messages
can be stored, replayed and re-encoded, but not created.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.gossip.codec import sign_message
from shoal_p2p.net.address import to_libp2p_id
from shoal_p2p.net.identity import identity_from_seed
from shoal_wire.announcement import Announcement, encode_announcement
from shoal_wire.codec import batch_to_bytes, compress, encode_batch
from shoal_wire.limits import ANNOUNCEMENT_PAYLOAD_TYPE
from shoal_wire.types import (
    BatchId,
    Digest,
    FinishReason,
    InlineTask,
    PolicyInfo,
    RolloutBatch,
    RolloutGroup,
    SamplingParams,
    Task,
)
from tests.fuzz.mutate import mutate
from tests.support import factories as make
from tests.support.hostile_text import ALL_THAT_UTF8_HOLDS
from tests.wire.envelope_mutations import Field, fields_of, other_spellings, spelled

_HOUR_MS = 3_600_000
_NUMBERS = (0, 1, 2, 255, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 62) - 1, 1 << 62, (1 << 63) - 1)
_AHEAD_MS = (-30 * _HOUR_MS, -2 * _HOUR_MS, -_HOUR_MS, 25_000, 40_000, 100_000, 30 * _HOUR_MS)
_TEXTS = ("", "x", "7", ALL_THAT_UTF8_HOLDS, "A" * 200, "B" * 50_000, "\x00", "<|im_start|>")


def number(rng: random.Random) -> int:
    """Return a boundary value, or any number."""
    return rng.choice((*_NUMBERS, rng.randrange(1 << 40)))


def text(rng: random.Random) -> str:
    """Return an unexpected text."""
    return rng.choice(_TEXTS)


def author_of(rng: random.Random, manifest: Any, now_ms: int) -> make.Author:
    """Return a new author."""
    return make.Author(manifest, identity=identity_from_seed(rng.randbytes(32)), now_ms=now_ms)


# Batches


def groups(rng: random.Random) -> list[RolloutGroup]:
    """Return valid groups: few or many, of one task or of several, short or long."""
    count, answers = rng.choice(((1, 2), (1, 2), (2, 2), (16, 2), (1, 64), (60, 8)))
    length = rng.choice((1, 1, 20, 2000))
    start = rng.randrange(1 << 28)
    texts = [chr(97 + rng.randrange(26)) * length for _ in range(answers)]
    step = rng.choice((0, 1))
    return [make.group(start + step * n, [f"{t}{n}" for t in texts]) for n in range(count)]


def _changed_task(rng: random.Random, task: Task) -> Task:
    inline = InlineTask(question=text(rng), answer=text(rng))
    changes: list[dict[str, Any]] = [
        {"family": text(rng)},
        {"config_digest": Digest(rng.randbytes(rng.choice((0, 16, 32))))},
        {"seed": number(rng)},
        {"index": number(rng)},
        {"verifier": text(rng)},
        {"verifier_version": text(rng)},
        {"question_digest": Digest(rng.randbytes(16))},
        {"inline": inline},
    ]
    return replace(task, **rng.choice(changes))


def _changed_group(rng: random.Random, group: RolloutGroup) -> RolloutGroup:
    if rng.random() < 0.5:
        return RolloutGroup(task=_changed_task(rng, group.task), completions=group.completions)
    odd = make.completion(
        text(rng),
        num_tokens=number(rng),
        finish_reason=rng.choice(list(FinishReason)),
        logprobs=rng.choice((None, (), (0.0,), (float("nan"), -1e9))),
    )
    some = rng.choice(((), (odd,), (odd, odd), (*group.completions, odd), (odd,) * 300))
    return RolloutGroup(task=group.task, completions=some)


def changed(rng: random.Random, batch: RolloutBatch) -> RolloutBatch:
    """Return a batch with one false value."""
    first, *others = batch.groups
    policy = PolicyInfo(
        model_name=text(rng), tokenizer_digest=Digest(b"t" * 16), policy_version=number(rng)
    )
    sampling = SamplingParams(
        temperature=rng.choice((-1.0, 0.0, float("nan"), float("inf"))),
        top_p=rng.choice((0.0, 2.0, float("nan"))),
        top_k=number(rng) % (1 << 31),
        max_new_tokens=number(rng) % (1 << 31),
    )
    changes: list[dict[str, Any]] = [
        {"swarm_digest": Digest(rng.randbytes(rng.choice((0, 31, 32))))},
        {"sequence": number(rng)},
        {"round": number(rng)},
        {"created_ms": batch.created_ms + rng.choice(_AHEAD_MS)},
        {"created_ms": number(rng)},
        {"previous_sequence": number(rng)},
        {"previous_sequence": max(0, batch.sequence - rng.randint(1, 99))},
        {"policy": policy},
        {"sampling": sampling},
        {"groups": ()},
        {"groups": (first,) * rng.choice((2, 64))},
        {"groups": (_changed_group(rng, first), *others)},
    ]
    return replace(batch, **rng.choice(changes))


# Envelopes


def envelope(rng: random.Random, author: make.Author) -> bytes:
    """Return a valid sealed batch."""
    return author.envelope(author.batch(groups(rng)))


def odd_envelope(rng: random.Random, author: make.Author) -> bytes:
    """Return an envelope with an error, signed by its author."""
    batch = author.batch(groups(rng))
    kind = rng.randrange(5)
    try:
        if kind == 0:
            return respelled(rng, author.envelope(batch))
        if kind == 1:
            return author.seal(compress(mutate(rng, [batch_to_bytes(batch)])))
        if kind == 2:
            return author.seal(mutate(rng, [encode_batch(batch)]))
        if kind == 3:
            return author.seal(encode_batch(batch), rng.choice((b"", b"/x", b"/x" * 200)))
        return author.envelope(changed(rng, batch))
    except (ValueError, OverflowError):  # protobuf cannot encode it
        return author.envelope(batch)


def respelled(rng: random.Random, raw: bytes) -> bytes:
    """Return another encoding of a signed envelope."""
    try:
        spellings = list(other_spellings(raw).values())
        unknown = Field(number=rng.randint(6, 99), wire_type=2, value=rng.randbytes(4))
        spellings.append(raw + spelled([unknown]))
        spellings.append(spelled(rng.sample(fields_of(raw), len(fields_of(raw)))))
    except (AssertionError, IndexError, ValueError):  # already re-encoded
        spellings = []
    return rng.choice([*spellings, mutate(rng, [raw]), raw + rng.randbytes(2), raw[:-1]])


def announcement(rng: random.Random, author: make.Author, digest: BatchId | None = None) -> bytes:
    """Return an announcement of a big batch: another's, unknown, or of impossible size and time."""
    author.sequence += 1
    announced = Announcement(
        swarm_digest=author.manifest.digest,
        sequence=rng.choice((author.sequence, author.sequence, number(rng) % (1 << 62))),
        previous_sequence=rng.choice((0, author.sequence - 1, author.sequence + 5)),
        created_ms=author.now_ms + rng.choice((0, 0, 0, *_AHEAD_MS)),
        num_groups=rng.choice((1, 4, 64, 1024, 5000)),
        batch_id=digest or BatchId(rng.randbytes(32)),
        num_bytes=rng.choice((1, 200, 100_000, 3_000_000, 1 << 40)),
        expires_ms=author.now_ms + rng.choice((-1000, 60_000, 60_000, 1 << 40)),
    )
    payload = encode_announcement(announced)
    if rng.random() < 0.2:
        payload = mutate(rng, [payload])
    return author.seal(payload, ANNOUNCEMENT_PAYLOAD_TYPE)


def big_batch(rng: random.Random, author: make.Author) -> tuple[bytes, bytes]:
    """Return a valid announcement and its envelope."""
    made = [make.group(rng.randrange(1 << 28), [_noise(rng) for _ in range(4)]) for _ in range(20)]
    raw = author.envelope(author.batch(made))
    claims = {"previous_sequence": author.sequence - 1, "num_groups": len(made)}
    return author.announcement(raw, **claims), raw


def _noise(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=1500))


# Messages of gossip


def message(
    rng: random.Random, author: make.Author, data: bytes, topic: str | None = None
) -> rpc_pb2.Message:
    """Return a message signed by its author, with a new sequence number."""
    manifest, identity = author.manifest, author.identity
    topic = topic or manifest.topic(manifest.shard_of(author.peer_id))
    raw_id = to_libp2p_id(author.peer_id).to_bytes()
    return sign_message(identity, raw_id, topic, data, rng.getrandbits(63))


def odd_message(rng: random.Random, honest: rpc_pb2.Message) -> rpc_pb2.Message:
    """Return a peer's message with a change that its signature covers, or does not."""
    made = rpc_pb2.Message()
    made.CopyFrom(honest)
    kind = rng.randrange(8)
    if kind == 0:
        made.signature = rng.randbytes(rng.choice((0, 63, 64, 65)))
    elif kind == 1:
        made.key = rng.randbytes(rng.choice((1, 36, 300)))
    elif kind == 2:
        made.seqno = rng.randbytes(rng.choice((0, 7, 8, 9, 300)))
    elif kind == 3:
        made.from_id = rng.randbytes(rng.choice((0, 34, 38)))
    elif kind == 4:
        made.topicIDs.append("/other")
    elif kind == 5:
        made.data = made.data + b"x"
    elif kind == 6:
        del made.topicIDs[:]
    else:
        raw = made.SerializeToString() + spelled(
            [
                Field(
                    number=rng.randint(7, 99),
                    wire_type=2,
                    value=rng.randbytes(rng.choice((1, 999))),
                )
            ]
        )
        return rpc_pb2.Message.FromString(raw)
    return made

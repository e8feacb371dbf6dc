"""Hypothesis strategies of every value of the contract that encodes."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from shoal_ipc import messages as m
from shoal_wire import digests
from shoal_wire.types import (
    Completion,
    FinishReason,
    InlineTask,
    PolicyInfo,
    PublishedGroup,
    RolloutBatch,
    RolloutGroup,
    SamplingParams,
    Task,
)

# Surrogates cannot be encoded as UTF-8; everything else may travel, NUL included.
texts = st.text(st.characters(codec="utf-8"), max_size=20)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
short_digests = st.binary(min_size=16, max_size=16)
digests_32 = st.binary(min_size=32, max_size=32)
floats32 = st.floats(width=32, allow_nan=False)
halves = st.integers(0, 2**16 - 1).map(
    lambda bits: struct.unpack("<e", bits.to_bytes(2, "little"))[0]
)
finite_halves = halves.filter(lambda value: abs(value) <= 65504.0)

tasks = st.builds(
    Task,
    family=texts,
    config_digest=short_digests,
    seed=u64,
    index=u64,
    verifier=texts,
    verifier_version=texts,
    question_digest=short_digests,
    inline=st.none() | st.builds(InlineTask, question=texts, answer=texts),
)
completions = st.builds(
    Completion,
    text=texts,
    num_tokens=u32,
    finish_reason=st.sampled_from(FinishReason),
    # An empty sequence of log-probs is none on the wire.
    logprobs=st.none() | st.lists(finite_halves, min_size=1, max_size=4).map(tuple),
)
groups = st.builds(
    RolloutGroup, task=tasks, completions=st.lists(completions, max_size=3).map(tuple)
)
policies = st.builds(
    PolicyInfo,
    model_name=texts,
    tokenizer_digest=short_digests | st.just(b""),
    policy_version=u64,
)
samplings = st.builds(
    SamplingParams, temperature=floats32, top_p=floats32, top_k=u32, max_new_tokens=u32
)
group_lists = st.lists(groups, max_size=3).map(tuple)
batches = st.builds(
    RolloutBatch,
    swarm_digest=digests_32,
    sequence=u64,
    round=u64,
    created_ms=u64,
    policy=policies,
    sampling=samplings,
    groups=group_lists,
    previous_sequence=u64,
)


@st.composite
def published_groups(draw: st.DrawFn) -> PublishedGroup:
    """A group under its true id, which decoding checks."""
    group = draw(groups)
    return PublishedGroup(
        group_id=digests.group_id(group),
        publisher=draw(texts),  # type: ignore[arg-type]
        batch_id=draw(digests_32),  # type: ignore[arg-type]
        round=draw(u64),
        created_ms=draw(u64),
        policy=draw(policies),
        sampling=draw(samplings),
        group=group,
    )


id_lists = st.lists(short_digests, max_size=3).map(tuple)
reports = st.builds(
    m.GroupReport,
    group_id=short_digests,
    publisher=texts,
    rewards=st.lists(floats32, max_size=3).map(tuple),
)
outcomes = st.builds(
    m.GroupOutcome,
    group_id=short_digests,
    publisher=texts,
    model=texts,
    family=texts,
    reward=floats32,
    signal=st.floats(allow_nan=False),
    tokens=u32,
    why_unused=texts,
)
BODIES: dict[type, st.SearchStrategy[m.Body]] = {
    m.Hello: st.builds(
        m.Hello,
        ipc_version=u32,
        role=st.sampled_from(m.Role),
        pid=u32,
        consumed_ids=id_lists,
        held_ids=id_lists,
    ),
    m.HelloReply: st.builds(
        m.HelloReply, ipc_version=u32, peer_id=texts, manifest=st.binary(max_size=20)
    ),
    m.Publish: st.builds(
        m.Publish,
        client_key=st.binary(max_size=20),
        round=u64,
        policy=policies,
        sampling=samplings,
        groups=group_lists,
    ),
    m.PublishReply: st.builds(
        m.PublishReply, sequence=u64, batch_id=digests_32, is_new=st.booleans()
    ),
    m.Sample: st.builds(
        m.Sample,
        num_local=u32,
        num_external=u32,
        strategy=texts,
        lease_seconds=st.floats(allow_nan=False),
        exclude_ids=id_lists,
    ),
    m.SampleReply: st.builds(
        m.SampleReply,
        groups=st.lists(
            st.builds(
                m.SampledGroup,
                published=published_groups(),
                own=st.booleans(),
                network=texts,
                connection=texts,
            ),
            max_size=2,
        ).map(tuple),
        ready_local=u32,
        ready_external=u32,
    ),
    m.Settle: st.builds(m.Settle, consumed_ids=id_lists, released_ids=id_lists),
    m.Done: st.builds(m.Done, count=u32),
    m.Report: st.builds(
        m.Report,
        groups=st.lists(reports, max_size=3).map(tuple),
        round=u64,
        learnt=st.lists(outcomes, max_size=3).map(tuple),
    ),
    m.TrainerStatus: st.builds(m.TrainerStatus, json=texts),
    m.Inspect: st.builds(m.Inspect, view=texts, options_json=texts),
    m.Control: st.builds(m.Control, action=st.sampled_from(m.ControlAction), peer_id=texts),
    m.InspectReply: st.builds(m.InspectReply, json=texts),
    m.JudgeAsk: st.just(m.JudgeAsk()),
    m.JudgeChallenge: st.builds(
        m.JudgeChallenge,
        challenge_id=st.binary(max_size=20),
        family=texts,
        question=texts,
        tagged=st.booleans(),
    ),
    m.JudgeAnswer: st.builds(
        m.JudgeAnswer,
        challenge_id=st.binary(max_size=20),
        text=texts,
        finish_reason=st.sampled_from(FinishReason),
        round=u64,
        policy_version=u64,
        model_name=texts,
        draws_externals=st.booleans(),
    ),
    m.JudgeScore: st.builds(
        m.JudgeScore, score=st.floats(allow_nan=False), number=u64, family=texts
    ),
    m.Failure: st.builds(m.Failure, reason=texts, retryable=st.booleans()),
}


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

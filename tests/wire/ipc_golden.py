"""What `tests/vectors/wire_ipc.json` holds, computed from this implementation.

Write it with ``python -m tests.wire.ipc_golden``: a vector is added, never altered.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from shoal_ipc import messages as m
from shoal_ipc.codec import encode_ipc
from shoal_ipc.v1 import ipc_pb2 as pb
from shoal_wire.digests import batch_id, group_id
from shoal_wire.envelope import peer_id_of
from shoal_wire.framing import encode_frame
from shoal_wire.types import (
    FinishReason,
    GroupId,
    InlineTask,
    PeerId,
    PolicyInfo,
    PublishedGroup,
    SamplingParams,
)
from tests.wire import wire_samples as sample

Json = dict[str, Any]
PATH = Path(__file__).parent.parent / "vectors" / "wire_ipc.json"

PEER = peer_id_of(sample.PUBLIC_1)
IDS = (GroupId(b"a" * 16), GroupId(bytes(range(16))))
CHALLENGE = b"c" * 16
POLICY = PolicyInfo(
    model_name="example/modèle", tokenizer_digest=sample.CONFIG_DIGEST, policy_version=2**33
)
SAMPLING = SamplingParams(temperature=0.5, top_p=0.75, top_k=50, max_new_tokens=4096)
GROUPS = (
    sample.recorded_group(),
    sample.recorded_group(
        sample.recorded_task(inline=InlineTask(question="Who?", answer="數"), family="human"),
        (
            sample.completion("it \n", num_tokens=2, logprobs=(-0.5, -2.25)),
            sample.completion("…", finish_reason=FinishReason.LENGTH),
        ),
    ),
)
SAMPLED = PublishedGroup(
    group_id=group_id(GROUPS[1]),
    publisher=PEER,
    batch_id=batch_id(b"an envelope"),
    round=2**40 - 1,
    created_ms=sample.NOW_MS,
    policy=POLICY,
    sampling=SAMPLING,
    group=GROUPS[1],
)

BODIES: dict[str, m.Body] = {
    **{
        f"hello of a {role}": m.Hello(ipc_version=1, role=role, pid=4242, held_ids=IDS)
        for role in m.Role
    },
    "hello of a trainer that resumes": m.Hello(
        ipc_version=1, role=m.Role.TRAINER, pid=1, consumed_ids=IDS, held_ids=IDS[:1]
    ),
    "hello reply": m.HelloReply(ipc_version=1, peer_id=PEER, manifest=b"\x08\x01 its bytes"),
    "publish": m.Publish(
        client_key=b"round 7", round=7, policy=POLICY, sampling=SAMPLING, groups=GROUPS
    ),
    "publish reply": m.PublishReply(
        sequence=2**53 + 1, batch_id=batch_id(b"an envelope"), is_new=True
    ),
    "publish reply to a resend": m.PublishReply(
        sequence=1, batch_id=batch_id(b"an envelope"), is_new=False
    ),
    "sample": m.Sample(num_external=12, lease_seconds=1.5),
    "sample by default": m.Sample(num_external=1),
    "sample reply": m.SampleReply(groups=(SAMPLED,), ready_external=2**20),
    "empty sample reply": m.SampleReply(groups=(), ready_external=0),
    "end of leases": m.Report(consumed_ids=IDS, released_ids=IDS[1:]),
    "ok": m.Ok(count=2),
    "done with nothing": m.Ok(),
    "report": m.Report(
        groups=(m.GroupReport(group_id=IDS[0], publisher=PEER, rewards=(0.0, 1.0, 0.25)),)
    ),
    "trainer status": m.TrainerStatus(json='{"round": 7, "state": "training"}'),
    "inspect": m.Inspect(view="rollouts", options_json='{"after": 12}'),
    "inspect reply": m.InspectReply(json='{"schema_version": 1}'),
    **{action: m.Control(action=action, peer_id=PEER) for action in m.ControlAction},
    "judge ask": m.JudgeAsk(),
    "judge challenge": m.JudgeChallenge(
        challenge_id=CHALLENGE, family="sums", question="What is 40 + 2?", tagged=True
    ),
    **{
        f"judge answer, {reason}": m.JudgeAnswer(
            challenge_id=CHALLENGE,
            text="<answer>42</answer>",
            finish_reason=reason,
            round=2**40 - 1,
            policy_version=2**33,
            model_name="example/modèle",
            uses_external_groups=reason is FinishReason.STOP,
        )
        for reason in FinishReason
    },
    "judge score": m.JudgeScore(score=0.25, number=2**53 + 1, family="sums"),
    "failure": m.Failure(reason="it is the wrong swarm"),
    "failure that may pass": m.Failure(reason="the disk is full", retryable=True),
    "report of a round": m.Report(
        round=2**40,
        outcomes=(
            m.GroupOutcome(
                group_id=IDS[0],
                publisher=PEER,
                model="example/modèle",
                family="sums",
                reward=0.25,
                signal=3.5,
                tokens=2**20,
            ),
            m.GroupOutcome(
                group_id=GroupId(b""),
                publisher=PeerId(""),
                model="",
                family="sums",
                reward=0.0,
                skip_reason="no_reward",
            ),
        ),
    ),
    "sample reply that says where a group came from": m.SampleReply(
        groups=(replace(SAMPLED, network="192.0.2.0/24"),), ready_external=0
    ),
    **{
        f"task {action}": m.TaskOrder(action=action, task="sums", rule="20MB,sums")
        for action in m.TaskAction
    },
}


def vectors() -> list[Json]:
    """Return the whole file: a frame for each body, and what a protobuf library reads in it."""
    return [_row(number, name, body) for number, (name, body) in enumerate(BODIES.items(), 1)]


def _row(number: int, name: str, body: m.Body) -> Json:
    raw = encode_ipc(m.IpcFrame(request_id=number, body=body))
    shown = MessageToDict(pb.IpcFrame.FromString(raw), preserving_proto_field_name=True)
    return {"name": name, "frame": encode_frame(raw).hex(), "message": shown}


if __name__ == "__main__":
    PATH.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

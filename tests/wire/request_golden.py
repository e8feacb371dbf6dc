"""What `tests/vectors/wire_requests.json` holds, computed from this implementation.

What peers ask each other but for rollouts, and a manifest and a batch with fields that the other
vectors leave out.  Write it with ``python -m tests.wire.request_golden``: a vector is added, never
altered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from shoal_wire import judge
from shoal_wire import judge_messages as j
from shoal_wire import task_messages as t
from shoal_wire.envelope import peer_id_of
from shoal_wire.framing import encode_frame
from shoal_wire.limits import PEERS_PROTOCOL, TASK_PIECE_BYTES, TASKS_PROTOCOL
from shoal_wire.manifest import Manifest, SwarmRules, make_manifest
from shoal_wire.offers import seal_offer
from shoal_wire.peers import PeerAddresses, encode_peer_list, encode_peer_query
from shoal_wire.reach import REACH_PROTOCOL, ReachReply, encode_reach_reply, encode_reach_request
from shoal_wire.task_codec import encode_task_answer, encode_task_query
from shoal_wire.types import Digest, FinishReason, RolloutBatch
from shoal_wire.v1 import judge_pb2, reach_pb2, rollout_pb2, swarm_pb2, tasks_pb2
from tests.wire import wire_samples as sample

Json = dict[str, Any]
PATH = Path(__file__).parent.parent / "vectors" / "wire_requests.json"

PEERS = tuple(sorted(peer_id_of(key) for key in (sample.PUBLIC_1, sample.PUBLIC_2)))
CHALLENGE = b"c" * 16

SHARDS = (0, 7, 300)
PEER_LIST = (
    PeerAddresses(
        peer_id=PEERS[0],
        addresses=("/ip4/192.0.2.1/tcp/4001", f"/ip4/192.0.2.9/tcp/1/p2p/{PEERS[1]}/p2p-circuit"),
        shards=SHARDS,
    ),
    PeerAddresses(peer_id=PEERS[1], addresses=("/ip6/::1/tcp/4001",)),
)
PORTS = (1, 4001, 65_535)
REACH_REPLIES = {
    "reached": ReachReply(
        observed="/ip4/192.0.2.1/tcp/4001",
        wall_ms=sample.NOW_MS,
        open_ports=PORTS[:2],
        dialled=True,
    ),
    "not dialled": ReachReply(observed="", wall_ms=sample.NOW_MS, open_ports=(), dialled=False),
}
RECORD = j.JudgeRecord(
    number=2**53 + 1,
    peer_id=PEERS[1],
    round=2**40 - 1,
    policy_version=2**33,
    model_name="example/modèle",
    mode=j.Mode.SWARM,
    swarm_digest=sample.swarm().digest,
    family="sums",
    config_digest=sample.CONFIG_DIGEST,
    seed=2**31 - 1,
    index=3,
    answer_digest=Digest(bytes(range(32))),
    finish_reason=FinishReason.STOP,
    score=0.25,
    asked_ms=sample.NOW_MS,
    judged_ms=sample.NOW_MS + 1500,
    challenges=12,
)
JUDGE_REQUESTS: dict[str, j.JudgeRequest] = {
    "ask": j.ChallengeRequest(swarm_digest=sample.swarm().digest),
    **{
        f"answer of a {mode}, {reason}": j.ChallengeAnswer(
            challenge_id=CHALLENGE,
            text="<answer>42</answer>" if reason is FinishReason.STOP else "",
            finish_reason=reason,
            round=2**40 - 1,
            policy_version=2**33,
            model_name="example/modèle",
            mode=mode,
        )
        for mode, reason in zip(j.Mode, FinishReason, strict=True)
    },
    "records of all": j.RecordQuery(),
    "records of a peer": j.RecordQuery(after=2**53 + 1, limit=1, peer_id=PEERS[1]),
}


def sealed_record() -> bytes:
    """Return the record's envelope."""
    public_key, key = sample.keypair()
    return judge.seal_record(RECORD, public_key=public_key, sign=key.sign)


def judge_replies() -> dict[str, j.JudgeReply]:
    """Return replies by name."""
    return {
        "challenge": j.Challenge(
            challenge_id=CHALLENGE, family="sums", question="40 + 2?", answer_within_ms=600_000
        ),
        "record": j.SealedRecord(envelope=sealed_record()),
        "records": j.RecordList(envelopes=(sealed_record(),)),
        "no records": j.RecordList(envelopes=()),
        **{
            reason: j.JudgeRefusal(reason=reason, retry_after_ms=1500 if reason == "busy" else 0)
            for reason in j.JudgeRefusalReason
        },
    }


def sealed_offer() -> bytes:
    """Return an offer's envelope."""
    public_key, key = sample.keypair()
    return seal_offer(
        sample.FAMILY,
        swarm_digest=sample.swarm().digest,
        created_ms=sample.NOW_MS,
        public_key=public_key,
        sign=key.sign,
    )


TASK_FILE = b"x" * (TASK_PIECE_BYTES + 1)
TASK_QUERIES: dict[str, t.TaskQuery] = {
    "which files": t.BundleQuery(family=sample.CONFIG_DIGEST),
    "a piece": t.PieceQuery(family=sample.CONFIG_DIGEST, file=1, piece=3),
    "offers": t.OffersQuery(swarm_digest=sample.swarm().digest),
    "new offers": t.OffersQuery(swarm_digest=sample.swarm().digest, known=(b"12345678",)),
}
TASK_ANSWERS: dict[str, t.TaskAnswer] = {
    "files": t.Bundle(
        files=(t.bundle_file("rows.jsonl", TASK_FILE), t.bundle_file("reward.py", b"pass\n")),
        good=("#### 1",),
        bad=("1", ""),
    ),
    "rows of a hub": t.Bundle(
        files=(t.bundle_file("rows.jsonl", b"{}\n"),),
        hub_rows='{"rows":"hf:org/sums@0123456789abcdef0123456789abcdef01234567"}',
    ),
    "piece": t.Piece(data=b"the bytes"),
    "an offer": t.Offers(
        envelopes=(sealed_offer(),),
        training=(t.Training(family=sample.CONFIG_DIGEST, reward=0.25, groups=2**33),),
    ),
    "no offers": t.Offers(),
    **{
        reason: t.TaskRefusal(reason=reason, retry_after_ms=1500 if reason == "busy" else 0)
        for reason in t.TaskRefusalReason
    },
}


def manifest() -> Manifest:
    """Return the manifest of a swarm for two peers."""
    return make_manifest("two", (sample.FAMILY,), SwarmRules(allowed_peers=PEERS))


def batch() -> RolloutBatch:
    """Return a batch that names the one before it."""
    return sample.recorded_batch(sequence=2**53 + 2, previous_sequence=2**53 + 1)


def vectors() -> Json:
    """Return the whole file: bytes, and what a protobuf library reads in them."""
    request, reply = judge_pb2.JudgeRequest, judge_pb2.JudgeReply
    return {
        "requests": [
            _row(PEERS_PROTOCOL, "without fields", swarm_pb2.PeerQuery, encode_peer_query()),
            _row(PEERS_PROTOCOL, "of shards", swarm_pb2.PeerQuery, encode_peer_query(SHARDS)),
            _row(REACH_PROTOCOL, "no dial", reach_pb2.ReachRequest, encode_reach_request(())),
            _row(REACH_PROTOCOL, "dial", reach_pb2.ReachRequest, encode_reach_request(PORTS)),
            *(
                _row(judge.JUDGE_PROTOCOL, name, request, judge.encode_request(made))
                for name, made in JUDGE_REQUESTS.items()
            ),
            *(
                _row(TASKS_PROTOCOL, name, tasks_pb2.TaskRequest, encode_task_query(made))
                for name, made in TASK_QUERIES.items()
            ),
        ],
        "replies": [
            _row(PEERS_PROTOCOL, "two peers", swarm_pb2.PeerList, encode_peer_list(PEER_LIST)),
            _row(PEERS_PROTOCOL, "no peers", swarm_pb2.PeerList, encode_peer_list(())),
            *(
                _row(REACH_PROTOCOL, name, reach_pb2.ReachReply, encode_reach_reply(made))
                for name, made in REACH_REPLIES.items()
            ),
            *(
                _row(judge.JUDGE_PROTOCOL, name, reply, judge.encode_reply(made))
                for name, made in judge_replies().items()
            ),
            *(
                _row(TASKS_PROTOCOL, name, tasks_pb2.TaskAnswer, encode_task_answer(made))
                for name, made in TASK_ANSWERS.items()
            ),
        ],
        "record": {
            "private_key_seed": sample.SEED_1.hex(),
            "judge": peer_id_of(sample.PUBLIC_1),
            "envelope": sealed_record().hex(),
            "message": _shown(
                judge_pb2.JudgeRecord, rollout_pb2.Envelope.FromString(sealed_record()).payload
            ),
        },
        "manifest": {"bytes": manifest().raw.hex(), "digest": manifest().digest.hex()}
        | {"message": _shown(swarm_pb2.SwarmManifest, manifest().raw)},
        "batch": {
            "bytes": sample.batch_message(batch()).SerializeToString().hex(),
            "message": MessageToDict(
                sample.batch_message(batch()), preserving_proto_field_name=True
            ),
        },
    }


def _row(protocol: str, name: str, kind: type[Message], raw: bytes) -> Json:
    return {
        "protocol": protocol,
        "type": kind.DESCRIPTOR.name,
        "name": name,
        "frame": encode_frame(raw).hex(),
        "message": _shown(kind, raw),
    }


def _shown(kind: type[Message], raw: bytes) -> Json:
    return MessageToDict(kind.FromString(raw), preserving_proto_field_name=True)


if __name__ == "__main__":
    PATH.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

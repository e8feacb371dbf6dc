"""What `tests/vectors/wire_*.json` hold, computed from this implementation.

The files are for other implementations: bytes are hex, 64-bit integers are decimal strings (a
JavaScript number cannot hold them), everything else is plain JSON.  Ed25519 and our protobuf
messages give the same bytes every time; zstd does not across releases, so the compressed payloads
are stored in the file and read, not recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

from shoal_ipc import messages as ipc_messages
from shoal_ipc.codec import encode_ipc
from shoal_wire import digests
from shoal_wire.codec import decode_batch, decompress
from shoal_wire.envelope import peer_id_of, public_key_message, seal, signed_bytes
from shoal_wire.framing import encode_frame
from shoal_wire.limits import BATCH_PAYLOAD_TYPE, MAX_BATCH_BYTES
from shoal_wire.manifest import Manifest, SwarmRules, make_manifest
from shoal_wire.peers import PeerAddresses, encode_peer_list
from shoal_wire.types import (
    BatchId,
    Digest,
    FinishReason,
    GroupId,
    InlineTask,
    PolicyInfo,
    RolloutBatch,
    SamplingParams,
)
from shoal_wire.v1 import rollout_pb2 as pb
from tests.wire import wire_samples as sample
from tests.wire.envelope_mutations import other_spellings
from tests.wire.small_order import small_order_encodings

Json = dict[str, Any]
SEEDS = {
    "plain": sample.SEED_1,
    "rich": sample.SEED_2,
    "inline": sample.SEED_1,
    "newer": sample.SEED_2,
}


NAMED_NOW = {
    "wrong_payload_type": "malformed_envelope",
    "key_not_ed25519": "bad_signature",
    "too_many_completions": "bad_count",
}
"""Vectors are added and never altered: reasons that they name as an earlier version did."""


def batches() -> dict[str, RolloutBatch]:
    """Return the batches of the envelope vectors by name."""
    rich = sample.recorded_batch(
        sequence=2**53 + 1,
        round=2**40 - 1,
        policy=PolicyInfo(
            model_name="example/modèle-0.5B", tokenizer_digest=Digest(b""), policy_version=2**33
        ),
        sampling=SamplingParams(temperature=0.5, top_p=0.75, top_k=50, max_new_tokens=4096),
        groups=(
            sample.recorded_group(
                sample.recorded_task(seed=2**31 - 1, index=2**31 - 1),
                (
                    sample.completion("数は 42 🐟\n", num_tokens=3, logprobs=(-0.5, -2.25, 0.0)),
                    sample.completion(
                        "e\u0301 ≠ \u00e9", num_tokens=2, finish_reason=FinishReason.LENGTH
                    ),
                ),
            ),
            sample.recorded_group(),
        ),
    )
    inline = sample.recorded_task(
        inline=InlineTask(question="What is 40 + 2?", answer="42"), family="human", seed=0, index=0
    )
    return {
        "plain": sample.recorded_batch(),
        "rich": rich,
        "inline": sample.recorded_batch(sequence=2, groups=(sample.recorded_group(inline),)),
        "newer": sample.recorded_batch(sequence=3),
    }


def batch_bytes(name: str) -> bytes:
    """Return the uncompressed protobuf of a batch; `newer` has fields of a later minor version."""
    made = sample.batch_message(batches()[name]).SerializeToString()
    # Field 2000, a varint, at the end: unknown to this version.
    return made + b"\x80\x7d\x2a" if name == "newer" else made


def envelopes(payloads: Mapping[str, bytes]) -> list[Json]:
    """Return the envelope vectors around these compressed payloads."""
    return [_envelope(name, payloads[name]) for name in batches()]


def _envelope(name: str, payload: bytes) -> Json:
    public_key, key = sample.keypair(SEEDS[name])
    raw = seal(payload, public_key=public_key, sign=key.sign)
    batch = decode_batch(payload, max_bytes=MAX_BATCH_BYTES)
    to_sign = signed_bytes(BATCH_PAYLOAD_TYPE, payload)
    return {
        "name": name,
        "private_key_seed": SEEDS[name].hex(),
        "public_key": public_key.hex(),
        "public_key_message": public_key_message(public_key).hex(),
        "peer_id": peer_id_of(public_key),
        "batch_bytes": decompress(payload, max_bytes=MAX_BATCH_BYTES).hex(),
        "payload": payload.hex(),
        "signed_bytes": to_sign.hex(),
        "signature": key.sign(to_sign).hex(),
        "envelope": raw.hex(),
        "batch_id": digests.batch_id(raw).hex(),
        "batch": batch_json(batch),
    }


def rejects(valid: bytes) -> list[Json]:
    """Return envelopes that must not open, with the verdict table's reason, made from `valid`."""
    message = pb.Envelope.FromString(valid)

    def changed(**fields: bytes) -> bytes:
        copy = pb.Envelope.FromString(valid)
        for field, value in fields.items():
            setattr(copy, field, value)
        return copy.SerializeToString()

    _, key = sample.keypair()
    no_domain = signed_bytes(BATCH_PAYLOAD_TYPE, message.payload)[1 + len("shoal-rollouts-v1") :]
    # The same signature with S + L for S: a verifier that does not reduce would take it too.
    order = 2**252 + 27742317777372353535851937790883648493
    large = int.from_bytes(message.signature[32:], "little") + order
    rows = {
        "cut short": ("malformed_envelope", valid[:-1]),
        "other payload type": ("wrong_payload_type", changed(payload_type=b"/x/1")),
        "secp256k1 key": ("key_not_ed25519", changed(public_key=b"\x08\x02\x12\x21" + bytes(33))),
        "bare key": ("key_not_ed25519", changed(public_key=sample.PUBLIC_1)),
        "other key": ("bad_signature", changed(public_key=public_key_message(sample.PUBLIC_2))),
        "signed without the domain": ("bad_signature", changed(signature=key.sign(no_domain))),
        "signed payload only": ("bad_signature", changed(signature=key.sign(message.payload))),
        "signature with S + L": (
            "bad_signature",
            changed(signature=message.signature[:32] + large.to_bytes(32, "little")),
        ),
        **{
            f"key of small order {key.hex()}": (
                "weak_key",
                changed(public_key=public_key_message(key), signature=b"\x01" + bytes(63)),
            )
            for key in small_order_encodings()
        },
        # The valid envelope in other bytes, which anybody could make of it.
        **{name: ("not_canonical", raw) for name, raw in other_spellings(valid).items()},
    }
    return [
        {"name": name, "reason": reason, "envelope": raw.hex()}
        for name, (reason, raw) in rows.items()
    ]


def manifest() -> Manifest:
    """Return the manifest of the vectors: every rule off its default, but open to every peer."""
    rules = SwarmRules(
        min_completions=4,
        max_completions=32,
        max_message_bytes=500_000,
        max_batch_bytes=4_000_000,
        max_completion_bytes=10_000,
        max_age_seconds=600,
        max_future_seconds=30,
        shard_count=8,
        allow_inline_tasks=True,
    )
    return make_manifest("school of fish", (sample.FAMILY,), rules)


def manifest_vector() -> Json:
    """Return the manifest vector."""
    made = manifest()
    rules = {field: getattr(made.rules, field) for field in SwarmRules.__dataclass_fields__}
    rules["allowed_peers"] = list(made.rules.allowed_peers)
    family = sample.FAMILY
    peers = [peer_id_of(key) for key in (sample.PUBLIC_1, sample.PUBLIC_2)]
    return {
        "manifest": made.raw.hex(),
        "digest": made.digest.hex(),
        "swarm_name": made.swarm_name,
        "rules": rules,
        "families": [
            {field: getattr(family, field) for field in type(family).__dataclass_fields__}
        ],
        "topics": list(made.topics()),
        "shards": {peer: made.shard_of(peer) for peer in peers},
    }


def frames() -> Json:
    """Return vectors of length-prefixed bodies: a peer list and IPC frames."""
    peer = peer_id_of(sample.PUBLIC_1)
    addresses = ("/ip4/192.0.2.1/tcp/4001", "/dns4/shoal.example/tcp/4001")
    peers = encode_peer_list([PeerAddresses(peer_id=peer, addresses=addresses)])
    hello = ipc_messages.Hello(
        ipc_version=1,
        role=ipc_messages.Role.TRAINER,
        pid=4242,
        consumed_ids=(GroupId(b"a" * 16),),
        held_ids=(GroupId(b"b" * 16), GroupId(b"c" * 16)),
    )
    reply = ipc_messages.PublishReply(sequence=2**53 + 1, batch_id=BatchId(bytes(32)), is_new=True)
    return {
        "peer_list": {
            "frame": encode_frame(peers).hex(),
            "peers": [{"peer_id": peer, "addresses": [f"{at}/p2p/{peer}" for at in addresses]}],
        },
        "empty_request": {"frame": encode_frame(b"").hex()},
        "ipc": [
            {
                "frame": _ipc_frame(1, hello),
                "request_id": "1",
                "body": "hello",
                "fields": {
                    "ipc_version": 1,
                    "role": "trainer",
                    "pid": 4242,
                    "consumed_ids": [item.hex() for item in hello.consumed_ids],
                    "held_ids": [item.hex() for item in hello.held_ids],
                },
            },
            {
                "frame": _ipc_frame(2**64 - 1, reply),
                "request_id": str(2**64 - 1),
                "body": "publish_reply",
                "fields": {
                    "sequence": str(reply.sequence),
                    "batch_id": reply.batch_id.hex(),
                    "is_new": True,
                },
            },
        ],
    }


def _ipc_frame(request_id: int, body: ipc_messages.Body) -> str:
    return encode_frame(encode_ipc(ipc_messages.IpcFrame(request_id=request_id, body=body))).hex()


_LONG = frozenset({"sequence", "round", "created_ms", "policy_version", "seed", "index"})


def batch_json(batch: RolloutBatch) -> Json:
    """Return a batch as the JSON of the vectors, which are older than `previous_sequence`."""
    found: Json = _json(batch)
    del found["previous_sequence"]
    return found


def _json(value: Any, name: str = "") -> Any:
    if is_dataclass(value):
        made = {one.name: _json(getattr(value, one.name), one.name) for one in fields(value)}
        named = {"group_id": digests.group_id(value).hex()} if name == "groups" else {}  # type: ignore[arg-type]
        return named | made
    if isinstance(value, tuple):
        return [_json(one, name) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if name in _LONG or isinstance(value, StrEnum) else value

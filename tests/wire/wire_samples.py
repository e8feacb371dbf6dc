"""A valid swarm and a valid batch, from which the tests of the contract deviate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from shoal_wire.codec import decompress, encode_batch
from shoal_wire.digests import question_digest
from shoal_wire.envelope import seal
from shoal_wire.limits import BATCH_PAYLOAD_TYPE, MAX_BATCH_BYTES, MIN_TRAINING_SEED
from shoal_wire.manifest import Manifest, SwarmRules, TaskFamily, make_manifest
from shoal_wire.rules import BatchRules
from shoal_wire.types import (
    Completion,
    Digest,
    FinishReason,
    PolicyInfo,
    RolloutBatch,
    RolloutGroup,
    SamplingParams,
    Task,
)
from shoal_wire.v1 import rollout_pb2 as pb

# RFC 8032, section 7.1: TEST 1 and TEST 2.
SEED_1 = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC_1 = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
SEED_2 = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC_2 = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")

NOW_MS = 1_700_000_000_000
CONFIG_DIGEST = Digest(bytes(range(16)))

FAMILY = TaskFamily(
    name="sums",
    generator="basic_arithmetic",
    config_json='{"max_digits":2}',
    weight=1.0,
    verifier="reasoning_gym",
    verifier_version="0.1.25",
    answer_format="plain",
)


def keypair(seed: bytes = SEED_1) -> tuple[bytes, Ed25519PrivateKey]:
    """Return the raw public key and the private key of `seed`."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw), key


def swarm(**changes: object) -> Manifest:
    """Return the manifest of the tests' swarm, with changed rules."""
    return make_manifest("test swarm", (FAMILY,), replace(SwarmRules(), **changes))  # type: ignore[arg-type]


def batch_rules(manifest: Manifest | None = None) -> BatchRules:
    """Return ready rules of `manifest`."""
    digests: Mapping[str, Digest] = {FAMILY.name: CONFIG_DIGEST}
    return BatchRules(manifest=manifest or swarm(), config_digests=digests)


def completion(text: str = "42", **changes: object) -> Completion:
    """Return a valid completion."""
    made = Completion(text=text, num_tokens=3, finish_reason=FinishReason.STOP)
    return replace(made, **changes)  # type: ignore[arg-type]


def task(**changes: object) -> Task:
    """Return a valid task of the swarm's family."""
    made = Task(
        family=FAMILY.name,
        config_digest=CONFIG_DIGEST,
        seed=MIN_TRAINING_SEED + 7,
        index=3,
        verifier=FAMILY.verifier,
        verifier_version=FAMILY.verifier_version,
        question_digest=question_digest("What is 40 + 2?"),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def group(
    of: Task | None = None, completions: tuple[Completion, ...] | None = None
) -> RolloutGroup:
    """Return a valid group of two completions."""
    answers = (completion("42"), completion("41", finish_reason=FinishReason.LENGTH))
    return RolloutGroup(
        task=of or task(), completions=answers if completions is None else completions
    )


def batch(**changes: object) -> RolloutBatch:
    """Return a batch that is valid at `NOW_MS` under `batch_rules()`."""
    made = RolloutBatch(
        swarm_digest=swarm().digest,
        sequence=1,
        round=5,
        created_ms=NOW_MS - 1000,
        policy=PolicyInfo(model_name="tiny", tokenizer_digest=Digest(b"t" * 16), policy_version=5),
        sampling=SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=12),
        groups=(group(),),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def recorded_task(**changes: object) -> Task:
    """Return the task of the vectors: they are of the encoding, and older than reserved seeds."""
    return replace(task(seed=7), **changes)  # type: ignore[arg-type]


def recorded_group(
    of: Task | None = None, completions: tuple[Completion, ...] | None = None
) -> RolloutGroup:
    """Return the group of the vectors."""
    return group(of or recorded_task(), completions)


def recorded_batch(**changes: object) -> RolloutBatch:
    """Return the batch of the vectors."""
    return batch(**{"groups": (recorded_group(),), **changes})


def batch_message(of: RolloutBatch | None = None) -> pb.RolloutBatch:
    """Return the protobuf form of a batch, for tests that deviate on the wire."""
    return pb.RolloutBatch.FromString(
        decompress(encode_batch(of or batch()), max_bytes=MAX_BATCH_BYTES)
    )


def sealed(
    payload: bytes | None = None, *, seed: bytes = SEED_1, payload_type: bytes = BATCH_PAYLOAD_TYPE
) -> bytes:
    """Return an envelope around `payload`, by default the valid batch's."""
    public_key, key = keypair(seed)
    return seal(
        encode_batch(batch()) if payload is None else payload,
        public_key=public_key,
        sign=key.sign,
        payload_type=payload_type,
    )

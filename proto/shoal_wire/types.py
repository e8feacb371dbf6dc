"""The values that cross a process or a network boundary, as plain frozen dataclasses.

Everything outside `codec` works on these and never on protobuf classes.  The order
below is the order of SAPO's data path (arXiv 2509.08721, section 3): a task, its
completions, the group of them (the paper's *rollout*), and the batch that carries groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, NewType

from shoal_wire.fields import holding, sized
from shoal_wire.limits import MAX_COMPLETIONS, SHORT_DIGEST_BYTES

PeerId = NewType("PeerId", str)
"""A libp2p peer id in base58."""

GroupId = NewType("GroupId", bytes)
"""16 bytes: digest of a group's content (task coordinates and completions)."""

BatchId = NewType("BatchId", bytes)
"""32 bytes: SHA-256 of a sealed envelope's exact bytes."""

Digest = NewType("Digest", bytes)
"""A SHA-256 digest, possibly truncated; the field that holds it states the length."""

_ShortDigest = Annotated[Digest, sized(SHORT_DIGEST_BYTES, SHORT_DIGEST_BYTES, "digest of a task")]
_TokenizerDigest = Annotated[
    Digest, holding(lambda raw: len(raw) in (0, SHORT_DIGEST_BYTES), "digest of a tokenizer")
]


class FinishReason(StrEnum):
    """Why a completion ended. Text alone does not show whether it was cut off."""

    STOP = "stop"
    """The policy emitted its end token."""
    LENGTH = "length"
    """It reached the token limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineTask:
    """Question and answer of a task that cannot be regenerated from coordinates."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task by its coordinates: the receiver regenerates question and answer from them."""

    family: str
    """Name of a task family of the swarm's manifest."""
    config_digest: _ShortDigest
    """16 bytes: digest of the family's configuration."""
    seed: int
    """Generator seed, 0 ≤ seed < 2**31."""
    index: int
    """Item of the generator's stream, 0 ≤ index < 2**31."""
    verifier: str
    """Name of the verifier, e.g. ``reasoning_gym``."""
    verifier_version: str
    question_digest: _ShortDigest
    """16 bytes: truncated SHA-256 of the question's UTF-8 text."""
    inline: InlineTask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One completion, as text."""

    text: str
    num_tokens: int
    """Tokens generated, the end token included."""
    finish_reason: FinishReason
    logprobs: tuple[float, ...] | None = None
    """The generator's per-token log-probabilities, in nats: a claim, never trusted."""


class _Known:
    """Values computed once from an immutable value, and set with `object.__setattr__`.

    They are not part of the value: neither compared, nor copied, nor sent.
    """

    __slots__ = ("known_bytes", "known_id", "known_weight")

    known_bytes: int
    """See `codec.group_size`."""
    known_id: GroupId
    """See `digests.group_id`."""
    known_weight: int
    """See `shoal_p2p.intake.validation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup(_Known):
    """One node's L completions for one task: the paper's rollout Rⁿ(q)."""

    task: Task
    completions: Annotated[
        tuple[Completion, ...], sized(0, MAX_COMPLETIONS, "number of completions")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """The policy that generated a batch."""

    model_name: str
    tokenizer_digest: _TokenizerDigest
    """16 bytes, or empty when unknown."""
    policy_version: int
    """Number of updates the policy had received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """The sampling settings of the completions."""

    temperature: float
    top_p: float
    top_k: int
    """0 means no limit."""
    max_new_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutBatch:
    """A batch as a node publishes it: the payload inside a signed envelope."""

    swarm_digest: Digest
    """32 bytes: digest of the swarm's manifest."""
    sequence: int
    """Strictly increasing per publisher, across restarts."""
    round: int
    created_ms: int
    """Publisher's wall clock, milliseconds since the epoch."""
    policy: PolicyInfo
    sampling: SamplingParams
    groups: tuple[RolloutGroup, ...]
    previous_sequence: int = 0
    """The publisher's batch before this one; 0 if there was none. It reveals missed batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedBatch:
    """A batch whose envelope was opened: its signature is valid for these exact bytes."""

    batch_id: BatchId
    publisher: PeerId
    batch: RolloutBatch
    envelope: bytes
    """The sealed bytes exactly as received, stored so that anyone can verify them later."""
    delivered_by: PeerId | None = field(default=None, compare=False)
    """The peer that delivered it, if known. Unlike the rest, this is not signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedGroup:
    """One group of a valid batch with its provenance: the unit of the buffer and of training."""

    group_id: GroupId
    publisher: PeerId
    batch_id: BatchId
    round: int
    created_ms: int
    policy: PolicyInfo
    sampling: SamplingParams
    group: RolloutGroup
    network: str = field(default="", compare=False)
    """On the node's socket: an opaque label of its publisher's IP network, for comparison only.
    Empty if the node has never been connected to the publisher. Unlike the rest, not signed."""

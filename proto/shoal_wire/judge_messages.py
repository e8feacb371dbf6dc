"""What peers and a judge tell each other over `/shoal/judge/1`, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shoal_wire.types import Digest, FinishReason, PeerId


class Mode(StrEnum):
    """How a policy trains, by its own word."""

    SWARM = "swarm"
    """On groups of other nodes too."""
    SILO = "silo"
    """On its own alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeRequest:
    """A question, please."""

    swarm_digest: Digest
    """32 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeAnswer:
    """The one answer to a challenge, and what the answerer says of itself."""

    challenge_id: bytes
    """16 bytes."""
    text: str
    """May be empty: a policy may end at once."""
    finish_reason: FinishReason
    round: int
    policy_version: int
    model_name: str
    mode: Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """Records above a number, the lowest first."""

    after: int = 0
    limit: int = 256
    peer_id: PeerId | None = None
    """None asks for all peers' records."""


JudgeRequest = ChallengeRequest | ChallengeAnswer | RecordQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """A question with its deadline. Its coordinates come with the record."""

    challenge_id: bytes
    """16 bytes."""
    family: str
    question: str
    answer_within_ms: int
    """From now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedRecord:
    """The envelope of one record."""

    envelope: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordList:
    """Envelopes of records; empty where there are no more."""

    envelopes: tuple[bytes, ...]


class RefusalReason(StrEnum):
    """Why a judge did not do what it was asked."""

    BUSY = "busy"
    """Over a quota, or too much to do."""
    WRONG_SWARM = "wrong_swarm"
    UNKNOWN_CHALLENGE = "unknown_challenge"
    """Answered before, of another peer, or never given."""
    LATE = "late"
    BAD_ANSWER = "bad_answer"
    """A field out of its bounds; the challenge stays open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRefusal:
    """Not done, and why."""

    reason: RefusalReason
    retry_after_ms: int = 0


JudgeReply = Challenge | SealedRecord | RecordList | JudgeRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRecord:
    """One judged answer: what the judge signs."""

    number: int
    """The judge's own count, from 1."""
    peer_id: PeerId
    round: int
    """This and the next three are the peer's own word."""
    policy_version: int
    model_name: str
    mode: Mode
    swarm_digest: Digest
    """32 bytes."""
    family: str
    config_digest: Digest
    """16 bytes."""
    seed: int
    index: int
    answer_digest: Digest
    """32 bytes: SHA-256 of the answer's UTF-8 text."""
    finish_reason: FinishReason
    score: float
    """0 ≤ score ≤ 1."""
    asked_ms: int
    """The judge's wall clock."""
    judged_ms: int
    challenges: int
    """Challenges this peer has been given so far, this one included."""

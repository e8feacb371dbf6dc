"""Requests and replies between peers and a judge over `/shoal/judge/1`, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from shoal_wire.base58 import is_peer_id_text
from shoal_wire.fields import at_most, holding, sized, within
from shoal_wire.limits import (
    DIGEST_BYTES,
    MAX_COMPLETION_BYTES,
    MAX_INDEX,
    MAX_NAME_BYTES,
    MAX_RETRY_MS,
    MAX_ROUND,
    MAX_SEED,
    MAX_SEQUENCE,
    SHORT_DIGEST_BYTES,
)
from shoal_wire.types import Digest, FinishReason, PeerId

CHALLENGE_ID_BYTES: Final = 16
MAX_QUESTION_BYTES: Final = 64 * 1024
MAX_RECORD_BYTES: Final = 1024
"""A record's whole envelope."""
MAX_RECORDS: Final = 256
"""Records in one answer."""
MAX_ANSWER_MS: Final = 3_600_000
_MAX_MS: Final = 1 << 48

known_peer_id = holding(is_peer_id_text, "peer id")
bounded_record = sized(1, MAX_RECORD_BYTES, "length of a record")
_ChallengeId = Annotated[bytes, sized(CHALLENGE_ID_BYTES, CHALLENGE_ID_BYTES, "challenge id")]
_Digest = Annotated[Digest, sized(DIGEST_BYTES, DIGEST_BYTES, "length of a digest")]
_Name = Annotated[str, sized(1, MAX_NAME_BYTES, "name"), holding(str.isprintable, "name")]
_Counter = Annotated[int, within(0, MAX_ROUND - 1, "round or version")]
_WallMs = Annotated[int, within(0, _MAX_MS - 1, "time of a record")]


class Mode(StrEnum):
    """A policy's way of training, as it reports itself."""

    SWARM = "swarm"
    """Also trains on groups of other nodes."""
    SILO = "silo"
    """Trains only on its own groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeRequest:
    """Requests a question."""

    swarm_digest: _Digest
    """32 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeAnswer:
    """The only answer to a challenge, with the answering peer's description of its policy."""

    challenge_id: _ChallengeId
    """16 bytes."""
    text: Annotated[str, sized(0, MAX_COMPLETION_BYTES, "length of the answer")]
    """May be empty: a policy may end at once."""
    finish_reason: FinishReason
    round: _Counter
    policy_version: _Counter
    model_name: _Name
    mode: Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """Requests records above a number, the lowest first."""

    after: Annotated[int, within(0, MAX_SEQUENCE - 1, "number of a record")] = 0
    limit: Annotated[int, within(1, MAX_RECORDS, "limit of records")] = 256
    peer_id: PeerId | None = None
    """None asks for all peers' records."""


JudgeRequest = ChallengeRequest | ChallengeAnswer | RecordQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """A question with its deadline. Only the record has the task's coordinates."""

    challenge_id: _ChallengeId
    """16 bytes."""
    family: _Name
    question: Annotated[str, sized(1, MAX_QUESTION_BYTES, "length of the question")]
    answer_within_ms: Annotated[int, within(1, MAX_ANSWER_MS, "time to answer")]
    """Milliseconds from now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedRecord:
    """The envelope of one record."""

    envelope: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordList:
    """Envelopes of records; empty if there are no more."""

    envelopes: Annotated[
        tuple[Annotated[bytes, bounded_record], ...], sized(0, MAX_RECORDS, "number of records")
    ]


class JudgeRefusalReason(StrEnum):
    """Why a judge refused a request."""

    BUSY = "busy"
    """The peer is over a quota, or the judge is overloaded."""
    WRONG_SWARM = "wrong_swarm"
    UNKNOWN_CHALLENGE = "unknown_challenge"
    """Answered already, another peer's, or never given."""
    LATE = "late"
    BAD_ANSWER = "bad_answer"
    """A field out of its bounds; the challenge stays open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRefusal:
    """A request that was not served, with the reason."""

    reason: JudgeRefusalReason
    retry_after_ms: Annotated[int, at_most(MAX_RETRY_MS)] = 0


JudgeReply = Challenge | SealedRecord | RecordList | JudgeRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRecord:
    """One judged answer: what the judge signs."""

    number: Annotated[int, within(1, MAX_SEQUENCE - 1, "number of a record")]
    """The judge's own count, from 1."""
    peer_id: Annotated[PeerId, known_peer_id]
    round: _Counter
    """This and the next three are the peer's own word."""
    policy_version: _Counter
    model_name: _Name
    mode: Mode
    swarm_digest: _Digest
    """32 bytes."""
    family: _Name
    config_digest: Annotated[
        Digest, sized(SHORT_DIGEST_BYTES, SHORT_DIGEST_BYTES, "length of a digest")
    ]
    """16 bytes."""
    seed: Annotated[int, within(0, MAX_SEED - 1, "coordinates")]
    index: Annotated[int, within(0, MAX_INDEX - 1, "coordinates")]
    answer_digest: _Digest
    """32 bytes: SHA-256 of the answer's UTF-8 text."""
    finish_reason: FinishReason
    score: Annotated[float, within(0.0, 1.0, "score")]
    """0 ≤ score ≤ 1."""
    asked_ms: _WallMs
    """The judge's wall clock."""
    judged_ms: _WallMs
    challenges: Annotated[int, within(1, MAX_SEQUENCE - 1, "count of challenges")]
    """Challenges this peer has been given so far, this one included."""

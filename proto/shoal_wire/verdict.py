"""The verdict table: every way in which an input from a peer can be judged.

*Accept* forwards and keeps, *ignore* costs the forwarder nothing, *reject* counts against the
forwarder and the signer. Overload and faults of our own are always *ignore*
(gossipsub v1.1, Extended Validators; lighthouse's `attestation_verification`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """What happens to a message."""

    ACCEPT = "accept"
    IGNORE = "ignore"
    REJECT = "reject"


class Reason(StrEnum):
    """Why. Counted per reason and peer, and shown by `shoal debug status`."""

    VALID = "valid"
    # reject
    OVERSIZE_MESSAGE = "oversize_message"
    UNKNOWN_TOPIC = "unknown_topic"
    MALFORMED_ENVELOPE = "malformed_envelope"
    NOT_CANONICAL = "not_canonical"
    WRONG_PAYLOAD_TYPE = "wrong_payload_type"
    MALFORMED_PAYLOAD = "malformed_payload"
    CORRUPT_COMPRESSION = "corrupt_compression"
    OVERSIZE_PAYLOAD = "oversize_payload"
    KEY_NOT_ED25519 = "key_not_ed25519"
    WEAK_KEY = "weak_key"
    BAD_SIGNATURE = "bad_signature"
    SIGNER_NOT_SENDER = "signer_not_sender"
    CLAIMS_TO_BE_ME = "claims_to_be_me"
    WRONG_SWARM = "wrong_swarm"
    EQUIVOCATION = "equivocation"
    FAR_FUTURE = "far_future"
    QUESTION_MISMATCH = "question_mismatch"
    NO_GROUPS = "no_groups"
    TOO_MANY_GROUPS = "too_many_groups"
    NO_COMPLETIONS = "no_completions"
    TOO_MANY_COMPLETIONS = "too_many_completions"
    EMPTY_TEXT = "empty_text"
    OVERSIZE_TEXT = "oversize_text"
    FORBIDDEN_CHARACTER = "forbidden_character"
    BAD_NUMBER = "bad_number"
    BAD_FIELD = "bad_field"
    INLINE_NOT_ALLOWED = "inline_not_allowed"
    RESERVED_TASK = "reserved_task"
    BAD_ANNOUNCEMENT = "bad_announcement"
    UNFETCHABLE = "unfetchable"
    MALFORMED_REQUEST = "malformed_request"
    REQUEST_FLOOD = "request_flood"
    MALFORMED_ANSWER = "malformed_answer"
    WRONG_OBJECT = "wrong_object"
    # ignore
    NEWER_SCHEMA = "newer_schema"
    DUPLICATE = "duplicate"
    TOO_OLD = "too_old"
    NEAR_FUTURE = "near_future"
    UNKNOWN_FAMILY = "unknown_family"
    OTHER_VERIFIER_VERSION = "other_verifier_version"
    OVER_QUOTA = "over_quota"
    LEFT_TOPIC = "left_topic"
    INTAKE_FULL = "intake_full"
    WORKER_UNAVAILABLE = "worker_unavailable"
    TOO_DEAR = "too_dear"
    VALIDATOR_TIMEOUT = "validator_timeout"
    VALIDATOR_FAULT = "validator_fault"


_IGNORED = frozenset(
    {
        Reason.NEWER_SCHEMA,
        Reason.DUPLICATE,
        Reason.TOO_OLD,
        Reason.NEAR_FUTURE,
        Reason.UNKNOWN_FAMILY,
        Reason.OTHER_VERIFIER_VERSION,
        Reason.OVER_QUOTA,
        Reason.LEFT_TOPIC,
        Reason.INTAKE_FULL,
        Reason.WORKER_UNAVAILABLE,
        Reason.TOO_DEAR,
        Reason.VALIDATOR_TIMEOUT,
        Reason.VALIDATOR_FAULT,
    }
)
_HEAVY = frozenset(
    {
        Reason.OVERSIZE_PAYLOAD,
        Reason.KEY_NOT_ED25519,
        Reason.WEAK_KEY,
        Reason.BAD_SIGNATURE,
        Reason.SIGNER_NOT_SENDER,
        Reason.BAD_ANNOUNCEMENT,
        Reason.WRONG_OBJECT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement on one message."""

    outcome: Outcome
    reason: Reason
    heavy: bool = False
    """A reject that no honest software can produce; it weighs more in the peer's score."""
    work_s: float = field(default=0.0, compare=False)
    """What judging it cost, in seconds by count and not by the clock. No part of the table."""
    family: str = field(default="", compare=False)
    """Of its first group, fit to be shown; empty where that was not read. No part of the table."""


def verdict(reason: Reason) -> Verdict:
    """Return the verdict that the table gives for `reason`."""
    return _TABLE[reason]


def _outcome(reason: Reason) -> Outcome:
    if reason is Reason.VALID:
        return Outcome.ACCEPT
    return Outcome.IGNORE if reason in _IGNORED else Outcome.REJECT


_TABLE = {
    reason: Verdict(outcome=_outcome(reason), reason=reason, heavy=reason in _HEAVY)
    for reason in Reason
}
ACCEPT = _TABLE[Reason.VALID]

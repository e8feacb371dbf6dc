"""The verdict table: every verdict on an input from a peer, and its consequences.

*Accept* forwards and stores the message, *ignore* does not count against any peer, *reject* counts
against the forwarder and the signer. Overload and faults of this node are always *ignore*
(gossipsub v1.1, Extended Validators; lighthouse's `attestation_verification`).

A reason is one row of `Reason`: its verdict, the peers it counts against, and texts for the node's
owner. Reasons are never sent, so rows may be added, renamed or merged between versions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of validating a message."""

    ACCEPT = "accept"
    IGNORE = "ignore"
    REJECT = "reject"


class Sort(StrEnum):
    """The kind of a refusal: what it shows about the peer."""

    BROKEN = "broken"
    HOSTILE = "hostile"
    OTHER_VERSION = "other version"
    OTHER_SWARM = "other swarm"
    BUSY = "busy"


_DO = {
    Sort.BROKEN: "nothing: it was kept out, and a peer that continues is cut off by itself",
    Sort.HOSTILE: "nothing; to be rid of the peer at once: shoal debug block PEER",
    Sort.OTHER_VERSION: (
        "nothing, if it is rare; if it stays, have both run the same version of shoal"
    ),
    Sort.OTHER_SWARM: (
        "nothing; if all of a peer's are, its manifest differs: compare the swarms' digests"
    ),
    Sort.BUSY: "nothing, if it is rare; if it stays, give the node more of the processor",
}
"""Remedies by sort, for rows without one of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonRow:
    """The consequences of one reason."""

    outcome: Outcome
    sort: Sort
    message: str
    """The reason as text for the node's owner."""
    remedy: str
    """The remedy, for the node's owner."""
    heavy: bool = False
    """A reject that no honest software can cause; it counts five times as much."""
    signer_alone: bool = False
    """A reject that does not count against the peer that forwarded the message."""
    ours: bool = False
    """An ignore because of a fault of this node: the message is not marked as seen, so that another
    copy can still be accepted."""


def _broken(says: str, do: str = "", *, signer_alone: bool = False) -> ReasonRow:
    return ReasonRow(
        outcome=Outcome.REJECT,
        sort=Sort.BROKEN,
        message=says,
        remedy=do or _DO[Sort.BROKEN],
        signer_alone=signer_alone,
    )


def _hostile(says: str, *, heavy: bool = True, signer_alone: bool = False) -> ReasonRow:
    return ReasonRow(
        outcome=Outcome.REJECT,
        sort=Sort.HOSTILE,
        message=says,
        remedy=_DO[Sort.HOSTILE],
        heavy=heavy,
        signer_alone=signer_alone,
    )


def _foreign(sort: Sort, says: str, do: str = "", *, signer_alone: bool = False) -> ReasonRow:
    return ReasonRow(
        outcome=Outcome.REJECT,
        sort=sort,
        message=says,
        remedy=do or _DO[sort],
        signer_alone=signer_alone,
    )


def _ignored(sort: Sort, says: str, do: str = "", *, ours: bool = False) -> ReasonRow:
    return ReasonRow(
        outcome=Outcome.IGNORE, sort=sort, message=says, remedy=do or _DO[sort], ours=ours
    )


_CLOCK = "look at the clocks: shoal doctor"


class Reason(StrEnum):
    """Why. Counted per reason and peer, and shown by `shoal status`; the order of checks is
    that of docs/wire.md."""

    _value_: str
    row: ReasonRow

    def __new__(cls, name: str, row: ReasonRow) -> Reason:
        """Make a member that is the text `name` and carries its row."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.row = row
        return member

    VALID = (
        "valid",
        ReasonRow(outcome=Outcome.ACCEPT, sort=Sort.BUSY, message="taken", remedy="nothing"),
    )
    OVERSIZE_MESSAGE = "oversize_message", _broken("a message longer than the swarm allows")
    WRONG_SWARM = (
        "wrong_swarm",
        _foreign(Sort.OTHER_SWARM, "a message for another swarm, or on another author's topic"),
    )
    CLAIMS_TO_BE_ME = (
        "claims_to_be_me",
        _broken(
            "another peer sent it in this node's name",
            "if another node runs with a copy of this identity.key, give it one of its own",
        ),
    )
    MALFORMED_ENVELOPE = (
        "malformed_envelope",
        _foreign(Sort.OTHER_VERSION, "a message that cannot be read, or of an unknown sort"),
    )
    # A forwarder of another version may accept any encoding, key or seed.
    NOT_CANONICAL = (
        "not_canonical",
        _foreign(Sort.OTHER_VERSION, "a message in another encoding", signer_alone=True),
    )
    WEAK_KEY = (
        "weak_key",
        _hostile("signed with a weak key, for which anyone can sign", signer_alone=True),
    )
    BAD_SIGNATURE = (
        "bad_signature",
        _hostile("the signature is false: changed on the way, forged, or by another kind of key"),
    )
    SIGNER_NOT_SENDER = (
        "signer_not_sender",
        _hostile("signed by another peer than its claimed sender"),
    )
    OVERSIZE_PAYLOAD = (
        "oversize_payload",
        _hostile("answers that unpack to more than the swarm allows"),
    )
    MALFORMED_PAYLOAD = (
        "malformed_payload",
        _foreign(Sort.OTHER_VERSION, "signed answers that cannot be unpacked or read"),
    )
    OTHER_VERSION = (
        "other_version",
        _ignored(
            Sort.OTHER_VERSION, "of a newer shoal, or judged by another version of the scorer here"
        ),
    )
    TOO_OLD = (
        "too_old",
        _ignored(
            Sort.BUSY,
            "older than the swarm keeps",
            f"nothing, if it is rare; if it stays, {_CLOCK}",
        ),
    )
    NEAR_FUTURE = "near_future", _ignored(Sort.BUSY, "dated ahead of this machine's clock", _CLOCK)
    FAR_FUTURE = (
        "far_future",
        _broken(
            "dated more than a day ahead",
            "look at this machine's clock (shoal doctor); else it is the author's",
        ),
    )
    BAD_FIELD = "bad_field", _broken("a field with a value or a number that it cannot have")
    BAD_COUNT = (
        "bad_count",
        _broken("fewer or more questions or answers than the swarm takes"),
    )
    BAD_COMPLETION = (
        "bad_completion",
        _broken("an answer that is empty, too long, or has a forbidden character or number"),
    )
    RESERVED_TASK = (
        "reserved_task",
        _broken("a question that is kept for evaluation", signer_alone=True),
    )
    UNKNOWN_FAMILY = (
        "unknown_family",
        _ignored(
            Sort.OTHER_SWARM,
            "of a task family that this swarm has not",
            "nothing; a family of your own has to be given to every peer with --tasks",
        ),
    )
    DUPLICATE = (
        "duplicate",
        _ignored(Sort.BUSY, "known already", "nothing: it came by another way before"),
    )
    # A forwarder may have seen only one of the two.
    EQUIVOCATION = (
        "equivocation",
        _hostile(
            "its author signed two different batches as one number", heavy=False, signer_alone=True
        ),
    )
    OVER_QUOTA = (
        "over_quota",
        _ignored(
            Sort.BUSY, "more than one author may send for now", "nothing: its next ones are taken"
        ),
    )
    UNFETCHABLE = "unfetchable", _broken("it announced a batch that it does not hold")
    BAD_ANNOUNCEMENT = "bad_announcement", _hostile("it announced a batch that is another's")
    QUESTION_MISMATCH = (
        "question_mismatch",
        _broken(
            "the question is not the one that its seed gives",
            "nothing; if all peers' are refused so, the task library here is another version",
        ),
    )
    BAD_REQUEST = (
        "bad_request",
        _broken("it asks for what cannot be read or may not be asked, or again before its time"),
    )
    MALFORMED_ANSWER = (
        "malformed_answer",
        _foreign(Sort.OTHER_VERSION, "an answer to a request that is none"),
    )
    WRONG_OBJECT = "wrong_object", _hostile("it gave other bytes than it was asked for")
    LEFT_TOPIC = (
        "left_topic",
        _ignored(Sort.BUSY, "of a topic that this node has left", "nothing: it passes"),
    )
    BUSY = "busy", _ignored(Sort.BUSY, "this node was too busy to look at it", ours=True)
    WORKER_UNAVAILABLE = (
        "worker_unavailable",
        _ignored(
            Sort.BUSY,
            "the task worker was not there to look at it",
            "nothing, if it is rare; if it stays, see shoal status and the node's log",
            ours=True,
        ),
    )
    COST_LIMIT = (
        "cost_limit",
        _ignored(
            Sort.BUSY,
            "its questions took the task worker longer than a message may take",
            "nothing, if it is rare; if it stays with many authors, the machine is overloaded",
            ours=True,
        ),
    )
    VALIDATOR_FAULT = (
        "validator_fault",
        _ignored(
            Sort.BUSY,
            "this node failed while it looked at it",
            "a fault of shoal's own: the node's log has it, please report it",
            ours=True,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one message."""

    outcome: Outcome
    reason: Reason
    heavy: bool = False
    """A reject that no honest software can cause; it counts more in the peer's score."""
    work_s: float = field(default=0.0, compare=False)
    """Validation cost in seconds, estimated from counts, not measured. Not part of the table."""
    family: str = field(default="", compare=False)
    """The family of its first group, safe to show; empty if it was not read. Not part of the table.
    """


def verdict(reason: Reason) -> Verdict:
    """Return the verdict that the table gives for `reason`."""
    return _VERDICTS[reason]


_VERDICTS = {
    reason: Verdict(outcome=reason.row.outcome, reason=reason, heavy=reason.row.heavy)
    for reason in Reason
}
ACCEPT = _VERDICTS[Reason.VALID]

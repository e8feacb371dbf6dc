"""Answers of a node's views on what it learnt from whom, and on what it refused."""

from __future__ import annotations

from typing_extensions import TypedDict

from shoal.shapes.peer import Versioned


class LearntFrom(TypedDict):
    """One publisher in the ledger of learning, this node included."""

    peer_id: str
    own: bool
    model: str
    looked_at: int
    trained: int
    signal: float
    reward: float | None
    trained_10m: int
    signal_1h: float
    last_s: float | None


class LearntFamily(TypedDict):
    """One family of own questions."""

    name: str
    groups: int
    reward: float | None
    reward_start: float | None


class Lately(TypedDict):
    """The last hour: what others brought beside what the node found itself."""

    window_s: int
    others_signal_share: float | None
    groups_own: int
    groups_others: int
    tokens_others: int
    bytes_in: int | None


class Mark(TypedDict):
    """What happened beside the rounds, once or several times."""

    kind: str
    round: int
    at_ms: int
    count: int
    about: list[str]


class Ledger(Versioned):
    """The view `ledger`."""

    at_ms: int
    round: int
    publishers: list[LearntFrom]
    families: list[LearntFamily]
    lately: Lately
    marks: list[Mark]


class RefusedCount(TypedDict):
    """How often a reason was given."""

    reason: str
    kind: str
    count: int
    says: str
    do: str


class Refused(TypedDict):
    """What was refused, and how often it was the same."""

    at_ms: int
    reason: str
    kind: str
    signer: str
    forwarder: str
    family: str
    times: int
    says: str
    do: str


class Refusals(Versioned):
    """The view `refusals`."""

    at_ms: int
    counts: list[RefusedCount]
    ring: list[Refused]

"""The messages between a node and its trainer or a debug CLI, as plain values.

Every request has exactly one reply: the one named in its docstring, or `Failure`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

from shoal_wire.fields import holding, sized
from shoal_wire.types import (
    BatchId,
    FinishReason,
    GroupId,
    PeerId,
    PolicyInfo,
    PublishedGroup,
    RolloutGroup,
    SamplingParams,
)

IPC_VERSION: Final = 1
"""Version of this contract; both sides state it in the handshake."""
MAX_LABEL_CHARS: Final = 256
"""A longer label of a sampled group, or name of a peer, is refused."""
_TaskText = Annotated[str, sized(0, 4 * MAX_LABEL_CHARS, "length of a task's name")]
_PeerText = Annotated[
    str, holding(lambda text: len(text) <= MAX_LABEL_CHARS, "control names no peer")
]


class Role(StrEnum):
    """The program at the other end of the socket."""

    TRAINER = "trainer"
    INSPECTOR = "inspector"
    PUBLISHER = "publisher"
    """Publishes groups that no trainer generated; several may be connected next to the trainer."""


NO_ROOM = "no space left on the node's disk"
"""Beginning of a retryable `Failure` that ends when the disk has space again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First request on every connection → `HelloReply`."""

    ipc_version: int
    role: Role
    pid: int
    consumed_ids: tuple[GroupId, ...] = ()
    """Groups whose effect is in the trainer's last checkpoint."""
    held_ids: tuple[GroupId, ...] = ()
    """Groups used since then; their leases are renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloReply:
    """The node's side of the handshake."""

    ipc_version: int
    peer_id: PeerId
    manifest: bytes
    """The manifest's exact bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Share groups → `PublishReply`, sent only when the batch is on disk."""

    client_key: bytes
    """Identifies the batch permanently: a resend under the same key is the same batch."""
    round: int
    policy: PolicyInfo
    sampling: SamplingParams
    groups: tuple[RolloutGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReply:
    """The batch is on disk and will be sent."""

    sequence: int
    batch_id: BatchId
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Lease groups → `SampleReply` at once, with at most this many."""

    num_external: int = 0
    lease_seconds: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleReply:
    """Leased groups, and how many more are ready."""

    groups: tuple[PublishedGroup, ...]
    ready_external: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ok:
    """The request took effect on `count` groups."""

    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """The rewards that verification gave to one group."""

    group_id: GroupId
    publisher: PeerId
    rewards: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """The outcome of one group in a round."""

    group_id: GroupId
    """Empty for a local group that was not published."""
    publisher: PeerId
    """Empty for a local group."""
    model: str
    family: str
    reward: float
    """Mean over its completions."""
    signal: float = 0.0
    """Sum of |advantage| over the completions that were trained on."""
    tokens: int = 0
    """Tokens of these completions."""
    skip_reason: str = ""
    """Empty if it was trained on; otherwise a `SkipReason`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The fate of leased groups → `Ok`, sent only when the consumed ids are on disk.

    It may be repeated: rewards count once for a group, and outcomes once for a round.
    """

    consumed_ids: tuple[GroupId, ...] = ()
    """Groups that are never sampled again: their effect is in a checkpoint, or they are useless."""
    released_ids: tuple[GroupId, ...] = ()
    """Groups that may be sampled again."""
    groups: tuple[GroupReport, ...] = ()
    """Rewards by verification."""
    round: int = 0
    """The round that has ended; 0 if none has."""
    outcomes: tuple[GroupOutcome, ...] = ()
    """The outcome of each group of this round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerStatus:
    """The trainer's state → `Ok`."""

    json: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspect:
    """Request a debug view → `InspectReply`."""

    view: str
    options_json: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectReply:
    """A debug view."""

    json: str


class ControlAction(StrEnum):
    """A user's command about a peer."""

    BLOCK = "block"
    UNBLOCK = "unblock"
    PROTECT = "protect"
    UNPROTECT = "unprotect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A command about one peer → `Ok`, sent once it is in force and on disk."""

    action: ControlAction
    peer_id: _PeerText
    """The peer as the user wrote it: the node checks it."""


class TaskAction(StrEnum):
    """A user's command about a task that is added to the swarm."""

    ADD = "add"
    ACCEPT = "accept"
    DECLINE = "decline"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """A command about one task → `Ok`, sent once an addition has begun, or the others are done."""

    action: TaskAction
    task: _TaskText
    """ADD: a name on offer, or the beginning of its digest; REMOVE: a name; otherwise a digest."""
    rule: _TaskText = ""
    """ADD: a value of `accept_tasks` that decides; empty to wait for ACCEPT or DECLINE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAsk:
    """Request a question of the judge → `JudgeChallenge`, or a `Failure`, which is retryable while
    the judge is being asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeChallenge:
    """The judge's question."""

    challenge_id: bytes
    family: str
    question: str
    tagged: bool
    """The answer is expected between ``<answer>`` tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAnswer:
    """The answer to a challenge → `JudgeScore`, or a `Failure`, which is retryable while the judge
    scores it.

    Sending it again requests the score.
    """

    challenge_id: bytes
    text: str
    finish_reason: FinishReason
    round: int
    policy_version: int
    model_name: str
    uses_external_groups: bool
    """True if the policy also trains on external groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeScore:
    """The judge's signed score of an answer."""

    score: float
    """0 ≤ score ≤ 1."""
    number: int
    """The judge's number of the record."""
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The request had no effect."""

    reason: str
    retryable: bool = False


Body = (
    Hello
    | HelloReply
    | Publish
    | PublishReply
    | Sample
    | SampleReply
    | Ok
    | Report
    | TrainerStatus
    | Inspect
    | InspectReply
    | Control
    | TaskOrder
    | JudgeAsk
    | JudgeChallenge
    | JudgeAnswer
    | JudgeScore
    | Failure
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IpcFrame:
    """One frame of the socket."""

    request_id: int
    body: Body = field(default_factory=Ok)

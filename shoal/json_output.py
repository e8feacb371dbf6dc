"""Types of the objects that commands print with --json, except views. `shoal schema` generates the
JSON schemas from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from shoal_ipc.answers import form
from shoal_ipc.answers.held_out import Evaluation
from shoal_ipc.answers.peer import Score, SwarmView

Free = dict[str, Any]
"""Values whose keys are documented on another page."""


class VersionedOutput(TypedDict):
    """An object with the version of its keys. Within a version, keys are only added."""

    schema_version: Literal[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAction(form.Versioned):
    """An action on a peer, and its record afterwards."""

    action: Literal["block", "unblock", "protect", "unprotect"] = "block"
    peer: Score = field(default_factory=Score)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFile:
    """One file of a bug report."""

    name: str = ""
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BugReport(form.Versioned):
    """Write what a bug report needs into one file, without your keys."""

    file: str = ""
    contents: tuple[ReportFile, ...] = ()


class Failed(VersionedOutput):
    """An error, on standard error; the exit code tells its kind."""

    error: str
    remedy: str


class Ready(VersionedOutput):
    """A node, bootstrap peer or judge that other peers can reach."""

    event: Literal["ready"]
    peer_id: str
    addresses: list[str]
    swarm: SwarmView
    data_dir: str
    records: NotRequired[int]


class PageReady(VersionedOutput):
    """The page is served."""

    event: Literal["ready"]
    url: str


class ServeReady(VersionedOutput):
    """A policy that is served, once it answers."""

    event: Literal["ready"]
    url: str
    """The base URL that a client of OpenAI's interface takes."""
    model: str


class ChatAnswer(VersionedOutput):
    """A policy's answer to one message."""

    model: str
    message: str
    answer: str
    finish_reason: Literal["stop", "length"]
    num_tokens: int


class RoundEvent(VersionedOutput):
    """A round of the trainer, an evaluation or a judge's score, with the figures of
    docs/metrics.md.
    """

    event: Literal["round", "held_out", "judge"]


class Config(VersionedOutput):
    """`--print-config`: value and origin of each setting."""


class ExperimentOutput(VersionedOutput):
    """The command `experiment`: the content of summary.json, by preset."""


class CompletionOutput(VersionedOutput):
    """The command `completion`."""

    shell: str
    script: str


class Schemas(VersionedOutput):
    """The command `schema`."""

    schemas: dict[str, Free]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    """A node of a local swarm."""

    name: str
    peer_id: str
    state: str
    round: int
    held_out: Evaluation | None
    held_out_initial: Evaluation | None
    reward_local: float | None
    reward_initial: float | None
    groups_external_used: int
    groups_published: int
    groups_received: int
    peers: int


class SwarmEvent(VersionedOutput):
    """The nodes of a local swarm."""

    event: Literal["progress", "end"]
    nodes: list[MemberRow]


class PeerProcess(TypedDict):
    """A peer that runs on this machine."""

    folder: str
    pid: int
    role: Literal["node", "bootstrap", "judge", "swarm"]
    round: int | None
    state: str
    parent_pid: int


class PeerProcesses(VersionedOutput):
    """The command `ps`."""

    peers: list[PeerProcess]


class StoppedPeer(TypedDict):
    """A peer that was stopped, and how many seconds that took."""

    folder: str
    pid: int
    role: str
    seconds: float


class StoppedPeers(VersionedOutput):
    """The command `stop`."""

    stopped: list[StoppedPeer]


class Invitation(VersionedOutput):
    """The command `invite`."""

    line: str
    swarm: SwarmView
    reach: str
    addresses: list[Free]
    private: bool
    with_key: bool
    task_files: list[str]
    """Task files that are not shared: each joining node needs a copy."""


class Published(VersionedOutput):
    """The command `publish`."""

    groups: int
    new: int


class Answered(VersionedOutput):
    """A question that was answered by hand."""

    family: str
    question: str
    completions: list[str]
    rewards: list[float]


class ExportedModel(VersionedOutput):
    """The command `export model`."""

    checkpoint: str
    out: str


class Exported(VersionedOutput):
    """The command `export data`."""

    out: str
    groups: int
    rows: int
    """Rows written: groups, or with `--for` what the trainer reads."""
    completions: int
    publishers: int
    mean_reward: float | None
    damaged_batches: int
    groups_not_verified: int
    pushed_to: str | None


class Family(TypedDict):
    """A task family."""

    preset: str | None
    name: str
    generator: str
    config: Free
    weight: float
    answer_format: str
    config_digest: str
    scorer: str
    verifier: str
    verifier_version: str
    notes: list[str]
    share: bool


class FamiliesOutput(VersionedOutput):
    """The command `tasks`."""

    families: list[Family]
    generators: list[str]


class ShownFamily(Family, VersionedOutput):
    """The command `tasks FAMILY`."""

    floor: Free
    evaluated: bool
    instruction: str | None
    sample: Free
    seen: NotRequired[Free]


class ReportOfJudges(TypedDict):
    """The command `judge report`."""

    schema_version: Literal[3]
    judges: list[Free]
    swarms: int
    records: int
    models: list[Free]
    figures: list[str]

"""What commands print with --json, apart from the views, and what stands there for an error."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from shoal.shapes.peer import Free, Swarm, Versioned


class Failed(Versioned):
    """An error, on standard error; the exit code says of what kind."""

    error: str
    do: str


class Ready(Versioned):
    """A node, bootstrap peer or judge that others can reach."""

    event: Literal["ready"]
    peer_id: str
    addresses: list[str]
    swarm: Swarm
    data_dir: str
    records: NotRequired[int]


class RoundEvent(Versioned):
    """A round of the trainer, or an evaluation: the figures of docs/metrics.md beside these."""

    event: Literal["round", "held_out"]


class Config(Versioned):
    """`--print-config`: by each setting its value and its origin."""


class Experiment(Versioned):
    """The command `experiment`: what summary.json has, by preset."""


class Entry(Versioned):
    """A line of a log."""

    time: str
    level: str
    process: str
    logger: str | None
    message: str
    traceback: str | None


class Completion(Versioned):
    """The command `completion`."""

    shell: str
    script: str


class Schemas(Versioned):
    """The command `schema`."""

    schemas: dict[str, Free]


class SwarmRow(TypedDict):
    """A node of a local swarm."""

    name: str
    peer_id: str
    state: str
    round: int
    reward_local: float | None
    reward_start: float | None
    groups_external_used: int
    groups_published: int
    groups_received: int
    peers: int


class SwarmEvent(Versioned):
    """The nodes of a local swarm."""

    event: Literal["progress", "end"]
    nodes: list[SwarmRow]


class Invitation(Versioned):
    """The command `invite`."""

    line: str
    swarm: Swarm
    reach: str
    addresses: list[Free]
    private: bool
    with_key: bool


class Published(Versioned):
    """The command `publish`."""

    groups: int
    new: int


class Answered(Versioned):
    """A question that was answered by hand."""

    family: str
    question: str
    completions: list[str]
    rewards: list[float]


class Exported(Versioned):
    """The command `export`."""

    out: str
    groups: int
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


class Families(Versioned):
    """The command `tasks`."""

    families: list[Family]
    generators: list[str]


class ShownFamily(Family, Versioned):
    """The command `tasks FAMILY`."""

    floor: Free
    evaluated: bool
    instruction: str | None
    sample: Free
    seen: NotRequired[Free]


class ReportOfJudges(TypedDict):
    """The command `judge report`."""

    schema_version: Literal[2]
    judges: list[Free]
    swarms: int
    records: int
    models: list[Free]
    figures: list[str]

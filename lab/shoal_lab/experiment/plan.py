"""The plan of an experiment: arms of nodes, seeds, rounds. Pure.

Experiment ──▶ Job (one arm, one seed) ──▶ N nodes, each with the settings of a NodeSpec
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from shoal_settings.schema import Settings

SILO = "8/0"
"""The arm that gains are measured against: no node shares."""
FILTERED: Final = "8/0 filtered"
"""The silo that filters, the fair comparison: most of sharing's effect is filtering."""
OURS: Final = "4/8 shoal"
"""A node's defaults: the arm with which every other one of its experiment is compared."""
CLEAN: Final = "clean"
"""The first word of an arm without attackers, in an experiment that has some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node of a swarm."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Differences from the experiment's settings, by the keys of docs/settings.md: I, J, strategy,
    model, L etc."""
    behaviour: str = "honest"
    """The name of its behaviour: see `shoal_lab.experiment.run.behaviour`."""
    role: str = ""
    """Its role in a report, where nodes differ."""
    learner: str = ""
    """The name of its training method (`shoal_lab.experiment.run.learners`); empty for shoal's.
    """
    families: tuple[str, ...] = ()
    """Task families of its local questions; none means all."""
    every: int = 1
    """Rounds of the swarm per round of this node; above 1 for a slow node."""
    late: float = 0.0
    """Share of the rounds that are over when it joins."""
    delay: int = 0
    """Rounds after which other nodes receive what it shares."""

    def plays(self, round_number: int, rounds: int) -> bool:
        """Return whether it takes part in this one of `rounds` rounds."""
        return self.late * rounds < round_number and round_number % self.every == 0

    def to_json(self) -> dict[str, Any]:
        """Return the keys that decide its results, without defaults."""
        unusual: dict[str, Any] = {"role": self.role, "families": list(self.families)}
        unusual |= {"learner": self.learner}
        unusual |= {"every": self.every if self.every != 1 else 0, "late": self.late}
        unusual |= {"delay": self.delay}
        return {
            "settings": dict(self.settings),
            "behaviour": self.behaviour,
            **{key: value for key, value in unusual.items() if value},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A swarm that is compared with other swarms."""

    name: str
    nodes: tuple[NodeSpec, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the keys that decide its results, without defaults."""
        return {"nodes": [node.to_json() for node in self.nodes]}

    def with_settings(self, **changes: Any) -> Arm:
        """The same with these settings in every node."""
        nodes = tuple(replace(node, settings={**node.settings, **changes}) for node in self.nodes)
        return replace(self, nodes=nodes)


def uniform_arm(name: str, num_nodes: int, **settings: Any) -> Arm:
    """An arm whose nodes are all alike."""
    return Arm(name=name, nodes=(NodeSpec(settings=settings),) * num_nodes)


def ratio_arm(name: str, num_nodes: int) -> Arm:
    """Return the arm of a name like 4/4: I and J. Raises ValueError for anything else."""
    local, external = (int(part) for part in name.split("/"))
    return uniform_arm(name, num_nodes, local=local, external=external)


def filtered_arm(num_nodes: int) -> Arm:
    """Return the silo that generates twice as many groups and trains on those with signal."""
    return uniform_arm(FILTERED, num_nodes, local=8, external=0, questions=16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One arm with one seed: the unit of work and of storage."""

    arm: Arm
    seed: int
    rounds: int
    base: Mapping[str, Any]
    """Settings of every node."""

    @property
    def num_nodes(self) -> int:
        """Nodes of its swarm."""
        return len(self.arm.nodes)

    def node_settings(self, index: int, data_dir: Path = Path("unused")) -> Settings:
        """The settings of one node, exactly as `shoal node` takes them."""
        # Publishers weighted equally, as in the paper; a real node weights them by reputation.
        chosen = {"publisher_sampling": "uniform", **self.base, **self.arm.nodes[index].settings}
        # The rounds in lab/results may name settings that have been removed since.
        own = {key: value for key, value in chosen.items() if key in Settings.model_fields}
        return Settings(
            **{**own, "rounds": self.rounds, "seed": self.node_seed(index), "data_dir": data_dir}
        )

    def node_seed(self, index: int) -> int:
        """A seed that is the same for this node in every arm, so that arms pair by seed."""
        digest = hashlib.sha256(f"experiment/{self.seed}/{index}".encode()).digest()
        return (int.from_bytes(digest[:4], "big") >> 1) or 1

    @property
    def shares(self) -> bool:
        """True if any node samples external groups."""
        return any(self.node_settings(index).external for index in range(self.num_nodes))

    @property
    def file_name(self) -> str:
        """The file of its rounds, below the output folder."""
        safe = "".join(c if c.isalnum() or c in "-." else "-" for c in self.arm.name)
        return f"rounds/{safe}/seed-{self.seed}.jsonl"

    def to_json(self) -> dict[str, Any]:
        """Return all that decides the result: a file that names another job is not reused."""
        return {
            "event": "job",
            "arm": self.arm.name,
            **self.arm.to_json(),
            "seed": self.seed,
            "rounds": self.rounds,
            "base": dict(self.base),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A comparison of arms over seeds."""

    name: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    rounds: int
    base: Mapping[str, Any]

    def jobs(self) -> list[Job]:
        """Every job; seeds outermost, so that early results compare all arms."""
        return [
            Job(arm=arm, seed=seed, rounds=self.rounds, base=self.base)
            for seed in self.seeds
            for arm in self.arms
        ]

    def to_json(self) -> dict[str, Any]:
        """The experiment as `config.json` stores it."""
        return {
            "name": self.name,
            "arms": [{"name": arm.name, **arm.to_json()} for arm in self.arms],
            "seeds": list(self.seeds),
            "rounds": self.rounds,
            "base": dict(self.base),
            "mode": "in-process",
        }


def same_job(line: str, job: Job) -> bool:
    """Return whether a file's first line names this job. Further keys of the line are ignored."""
    try:
        found = json.loads(line)
        wanted = json.loads(json.dumps(job.to_json()))
        return all(found.get(key) == value for key, value in wanted.items())
    except (ValueError, AttributeError):
        return False


def refusal(job: Job) -> str | None:
    """Why an arm cannot be run as requested, in one line; None if it can."""
    for index in range(job.num_nodes):
        settings = job.node_settings(index)
        for key in NOT_IN_MEMORY:
            if getattr(settings, key) != Settings.model_fields[key].default:
                return f"{key} has no effect in a swarm in memory: leave it out"
    return None


NOT_IN_MEMORY: Final = (
    *("role", "keep_running", "alone"),
    *("generator", "base_url", "remote_model", "concurrency"),
    *("threads", "resume", "round_seconds", "checkpoint_seconds", "judge"),
)
"""The trainer's settings that a swarm in memory does not read: nodes there have neither servers nor
judges, checkpoints nor clocks. `tests/lab/experiment/test_honoured.py` holds this to the code."""


def check_settings(experiment: Experiment) -> None:
    """Build every node's settings once. Raises pydantic's ValidationError."""
    for job in experiment.jobs()[: len(experiment.arms)]:
        for index in range(job.num_nodes):
            job.node_settings(index)

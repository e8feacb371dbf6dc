"""`shoal experiment hetero`: swarms whose nodes differ. Pure but for making the larger model.

Each arm is a swarm; a role is the nodes of an arm that are alike, and what is compared.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from shoal_lab.experiment.plan import SILO, Arm, NodeSpec
from shoal_lab.experiment.reading.summary import LATE, Spread, spread
from shoal_tasks.families import EASY

LARGER: Final = Path(".shoal") / "experiment" / "models" / "larger"
"""The model of another size and tokenizer, made from `tiny-sparse` when it is first needed."""
SHARING: Final[Mapping[str, Any]] = {"local": 4, "external": 4}
ALONE: Final[Mapping[str, Any]] = {"local": 8, "external": 0}
FROZEN: Final[Mapping[str, Any]] = {"local": 4, "external": 0, "learning_rate": 1e-15}
"""A node that only answers: a step of this rate is below what a float32 weight can change by."""
SLOW, LATE_JOINER = 3, 0.5


def all_arms(num_nodes: int) -> tuple[Arm, ...]:
    """Every kind of difference, and the two swarms without any."""
    alike = NodeSpec(settings=SHARING, role="alike")
    return (
        _arm(SILO, num_nodes, NodeSpec(settings=ALONE, role="alone")),
        _arm("4/4", num_nodes, alike),
        Arm(name="specialists 8/0", nodes=_specialists(num_nodes, ALONE)),
        Arm(name="specialists 4/4", nodes=_specialists(num_nodes, SHARING)),
        _arm("L", num_nodes, *(_asking(completions) for completions in (4, 8, 16))),
        _arm(
            "slow and late",
            num_nodes,
            replace(alike, role="steady"),
            replace(alike, role="slow", every=SLOW),
            replace(alike, role="steady"),
            replace(alike, role="late", late=LATE_JOINER),
        ),
        _arm("models", num_nodes, _with("tiny", "dense start"), _with("tiny-sparse", "sparse")),
        _arm(
            "sizes and tokenizers",
            num_nodes,
            replace(alike, role="small"),
            _with(str(LARGER), "larger"),
        ),
        _arm(
            "generate-only",
            num_nodes,
            replace(alike, role="in training"),
            NodeSpec(settings={**FROZEN, "model": "tiny"}, role="answers only"),
        ),
    )


def _arm(name: str, num_nodes: int, *kinds: NodeSpec) -> Arm:
    return Arm(name=name, nodes=tuple(kinds[i % len(kinds)] for i in range(num_nodes)))


def _asking(completions: int) -> NodeSpec:
    return NodeSpec(settings={**SHARING, "completions": completions}, role=f"L = {completions}")


def _with(model: str, role: str) -> NodeSpec:
    return NodeSpec(settings={**SHARING, "model": model}, role=role)


def _specialists(num_nodes: int, settings: Mapping[str, Any]) -> tuple[NodeSpec, ...]:
    names = [family.name for family in EASY]
    return tuple(
        NodeSpec(settings=settings, role="specialist", families=(names[i % len(names)],))
        for i in range(num_nodes)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One finished job, by node."""

    arm: Arm
    seed: int
    rewards: Mapping[int, Sequence[float]]
    """Reward on own fresh questions, of each round that the node played."""
    external: Mapping[int, Sequence[float]]
    """Others' groups trained on, likewise."""
    evaluated: Sequence[int]
    held_out: Mapping[int, Sequence[float]]
    """pass@1 over all families, by evaluation."""


def played(arm: Arm, seed: int, lines: Iterable[Mapping[str, Any]]) -> Played:
    """Sort a job's lines."""
    rewards: dict[int, list[float]] = defaultdict(list)
    external: dict[int, list[float]] = defaultdict(list)
    held_out: dict[int, list[float]] = defaultdict(list)
    evaluated: dict[int, None] = {}
    for line in lines:
        if line["event"] == "round":
            rewards[line["node"]].append(line["reward_local"] or 0.0)
            external[line["node"]].append(line["groups_external"])
        elif line["event"] == "held_out":
            held_out[line["node"]].append(line["held_out/pass@1"])
            evaluated[line["round"]] = None
    return Played(
        arm=arm,
        seed=seed,
        rewards=rewards,
        external=external,
        evaluated=list(evaluated),
        held_out=held_out,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSummary:
    """One role of one arm over its seeds."""

    arm: str
    role: str
    num_nodes: int
    num_seeds: int
    heldout: Spread
    """pass@1 over all families, mean of the last evaluations."""
    gain: float | None
    """Held-out over the silo's, minus one; None without a silo."""
    reward: Spread
    """Mean reward on own fresh questions in the last third of the rounds played."""
    external: Spread
    """Others' groups trained on, a round."""

    def to_json(self) -> dict[str, Any]:
        """As the command prints it."""
        return {
            "arm": self.arm,
            "role": self.role,
            "nodes": self.num_nodes,
            "seeds": self.num_seeds,
            "heldout": self.heldout.to_json(),
            "gain_over_8_0": None if self.gain is None else round(self.gain, 4),
            "reward": self.reward.to_json(),
            "groups_external": self.external.to_json(),
        }


def summarise(jobs: Sequence[Played]) -> list[RoleSummary]:
    """Sum up every role, in the order of the arms."""
    base = [_late_heldout(job, range(len(job.arm.nodes))) for job in jobs if job.arm.name == SILO]
    silo = statistics.fmean(base) if base else 0.0
    found = []
    for name in dict.fromkeys(job.arm.name for job in jobs):
        mine = [job for job in jobs if job.arm.name == name]
        for role in dict.fromkeys(node.role for node in mine[0].arm.nodes):
            found.append(_role(name, role, mine, silo))
    return found


def members(arm: Arm, role: str) -> list[int]:
    """The nodes of a role."""
    return [index for index, node in enumerate(arm.nodes) if node.role == role]


def _role(name: str, role: str, jobs: Sequence[Played], silo: float) -> RoleSummary:
    nodes = members(jobs[0].arm, role)
    late = [_late_heldout(job, nodes) for job in jobs]
    return RoleSummary(
        arm=name,
        role=role,
        num_nodes=len(nodes),
        num_seeds=len(jobs),
        heldout=spread(late),
        gain=statistics.fmean(late) / silo - 1 if silo else None,
        reward=spread(
            [statistics.fmean(_last_third(job.rewards[i]) for i in nodes) for job in jobs]
        ),
        external=spread([statistics.fmean(_mean(job.external[i]) for i in nodes) for job in jobs]),
    )


def _late_heldout(job: Played, nodes: Iterable[int]) -> float:
    return statistics.fmean(_mean(job.held_out[index][-LATE:]) for index in nodes)


def _last_third(values: Sequence[float]) -> float:
    return _mean(values[-max(1, len(values) // 3) :])


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0

"""Reads a job's JSONL into a `JobRun`: a value for each round, by node or averaged.

A run counts the honest nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from shoal_lab.experiment.folder import done_jobs, lines_of
from shoal_lab.experiment.plan import Experiment, Job

Line = dict[str, Any]
"""One event of a job's file."""
Series = tuple[float, ...]
"""One value a round, or an evaluation."""
ByNode = tuple[Series, ...]
"""The series of each node that counts."""
_OF_ALL: Final = ("pass@1", "reward", "num_items", "seconds")
"""Figures of an evaluation that are not one family's."""
SHOWN_NODE: Final = 0
"""The node whose answers to held-out questions are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One finished job. A series by round has one entry a round, from round 1.

    Averages by round are empty if nodes run different rounds.
    """

    arm: str
    seed: int
    rounds: int
    fresh: ByNode
    """Mean reward on own fresh questions, by round played."""
    held_out: ByNode
    """pass@1 on held-out questions, by evaluation."""
    evaluated: tuple[int, ...]
    """Rounds after which held-out questions were evaluated."""
    tokens: Series
    """Tokens that a node has generated so far."""
    cpu: Series = ()
    """CPU seconds that a node has spent in its rounds so far; empty if not recorded."""
    by_family: Mapping[str, ByNode] = field(default_factory=dict)
    """pass@1 on held-out questions of each family, by evaluation."""
    roles: tuple[str, ...] = ()
    """Each node's name in a report, where nodes differ."""
    planted: Series = ()
    """Share of honest completions that contain planted text, in rounds that have completions."""
    planted_right: Series = ()
    """The same for completions with a reward above 0."""
    answers: tuple[Sequence[Line], Sequence[Line]] = ((), ())
    """The shown node's answers to held-out questions before the first round and after the last."""

    def of_families(self, names: Sequence[str]) -> JobRun:
        """The same run, with held-out pass@1 averaged over these families; over all of its families
        if it has none of these.
        """
        mine = [found for name, found in self.by_family.items() if name in names]
        if not mine:
            return self
        return replace(
            self,
            held_out=tuple(mean_over_nodes(of_node) for of_node in zip(*mine, strict=True)),
        )

    def of_role(self, role: str) -> JobRun:
        """The nodes of one role alone, named after the arm and it; without means over all nodes."""

        def mine(by_node: ByNode) -> ByNode:
            return tuple(one for one, its in zip(by_node, self.roles, strict=True) if its == role)

        return replace(
            self,
            arm=f"{self.arm}, {role}",
            roles=(role,) * self.roles.count(role),
            fresh=mine(self.fresh),
            held_out=mine(self.held_out),
            tokens=(),
            cpu=(),
            by_family={name: mine(one) for name, one in self.by_family.items()},
        )


def load_runs(out: Path, experiment: Experiment) -> list[JobRun]:
    """Read every finished job of the experiment, in its order."""
    return [make_run(job, lines_of(out, job)) for job in done_jobs(out, experiment)]


def make_run(job: Job, lines: Iterable[Line]) -> JobRun:
    """Sort a job's events into series."""
    events = _Events(lines)
    counted = [index for index, node in enumerate(job.arm.nodes) if node.behaviour == "honest"]
    rounds = [events.rounds[index] for index in counted]
    evaluations = [events.held_out[index] for index in counted]
    evaluated = tuple(int(line["round"]) for line in evaluations[0])
    return JobRun(
        arm=job.arm.name,
        seed=job.seed,
        rounds=job.rounds,
        fresh=_columns(rounds, "reward_local"),
        held_out=_columns(evaluations, "held_out/pass@1"),
        evaluated=evaluated,
        tokens=_together([_running(c) for c in _columns(rounds, "tokens_generated")]),
        cpu=tuple(_running(_noted(rounds, "cpu_seconds"))),
        by_family=_by_family(evaluations),
        roles=tuple(job.arm.nodes[index].role for index in counted),
        planted=events.shares("planted"),
        planted_right=events.shares("planted_right"),
        answers=(events.answers[0], events.answers[job.rounds]),
    )


class _Events:
    """A job's lines, by event."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.rounds: dict[int, list[Line]] = defaultdict(list)
        self.held_out: dict[int, list[Line]] = defaultdict(list)
        self.answers: dict[int, list[Line]] = defaultdict(list)
        for line in lines:
            if line["event"] == "round":
                self.rounds[line["node"]].append(line)
            elif line["event"] == "held_out":
                self.held_out[line["node"]].append(line)
            elif line["event"] == "answers" and line["node"] == SHOWN_NODE:
                self.answers[line["round"]] = line["answers"]

    def shares(self, what: str) -> Series:
        """Return the mean over nodes, by round; rounds without the figure are skipped."""
        by_round: dict[int, list[float]] = defaultdict(list)
        for line in self._all_rounds():
            if line.get(what) is not None:
                by_round[line["round"]].append(line[what])
        return tuple(sum(shares) / len(shares) for _, shares in sorted(by_round.items()))

    def _all_rounds(self) -> list[Line]:
        lines = [line for lines in self.rounds.values() for line in lines]
        return sorted(lines, key=lambda line: line["round"])


def _noted(rounds: Sequence[Sequence[Line]], name: str) -> Series:
    if not all(name in line for lines in rounds for line in lines):
        return ()
    return _together(_columns(rounds, name))


def _by_family(evaluations: Sequence[Sequence[Line]]) -> dict[str, ByNode]:
    names = [
        name.removeprefix("held_out/")
        for name in next(iter(evaluations[0]), {})  # empty without an evaluation
        if name.startswith("held_out/") and name.removeprefix("held_out/") not in _OF_ALL
    ]
    return {name: _columns(evaluations, f"held_out/{name}") for name in names}


def _together(by_node: Sequence[Sequence[float]]) -> Series:
    """The mean over nodes that all run the same rounds."""
    return mean_over_nodes(by_node) if len({len(one) for one in by_node}) == 1 else ()


def mean_over_nodes(series: Sequence[Sequence[float]]) -> Series:
    """Average several nodes' series, entry by entry."""
    return tuple(sum(column) / len(column) for column in zip(*series, strict=True))


def _columns(by_node: Sequence[Sequence[Line]], name: str) -> ByNode:
    """Return one of the lines' numbers by node, then line; 0 where it is null."""
    return tuple(tuple(float(line[name] or 0.0) for line in lines) for lines in by_node)


def _running(values: Sequence[float]) -> list[float]:
    total, sums = 0.0, []
    for value in values:
        total += value
        sums.append(total)
    return sums

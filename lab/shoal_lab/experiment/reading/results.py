"""From a job's JSONL to numbers: one value a round, averaged over its nodes. Pure but for reading.

Every figure of a round is the mean over the swarm's honest nodes; `Run` keeps each node's own
reward too, for the paper's figures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal_lab.experiment.folder import done_jobs, lines_of
from shoal_lab.experiment.plan import Experiment, Job
from shoal_settings.schema import Settings

Line = dict[str, Any]
"""One event of a job's file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished job. Lists by round have one entry a round, from round 1."""

    arm: str
    seed: int
    fresh: tuple[tuple[float, ...], ...]
    """By node, then round: mean reward on own fresh questions."""
    training: tuple[tuple[float, ...], ...]
    """By node, then round: mean reward of the training set, others' groups included (the
    paper's figure)."""
    signal: tuple[float, ...]
    """By round: mean groups with signal in a node's training set, as a share of I + J."""
    tokens: tuple[float, ...]
    """By round: tokens that a node has generated so far."""
    seconds: tuple[float, ...]
    """By round: seconds that a node has spent in its rounds so far."""
    evaluated: tuple[int, ...]
    """Rounds after which held-out questions were asked."""
    held_out: tuple[tuple[float, ...], ...]
    """By node, then evaluation: pass@1."""
    questions: float
    """Own questions a node asks in a round."""
    looked_at: tuple[float, ...] = ()
    """By round: groups that a node has looked at, own and others'; empty where it was not noted."""

    @property
    def rounds(self) -> int:
        """Rounds played."""
        return len(self.tokens)


def load_runs(out: Path, experiment: Experiment) -> list[Run]:
    """Read every finished job of the experiment, in its order."""
    return [make_run(job, lines_of(out, job)) for job in done_jobs(out, experiment)]


def make_run(job: Job, lines: Iterable[Line]) -> Run:
    """Sort a job's events into series; nodes that are not honest, or leave, are left out."""
    honest = [
        index
        for index, node in enumerate(job.arm.nodes)
        if node.behaviour == "honest" and node.last_round(job.rounds) == job.rounds
    ]
    settings = [job.node_settings(index) for index in honest]
    all_rounds, all_evaluations = _by_node(lines)
    rounds = [all_rounds[index] for index in honest]
    evaluations = [all_evaluations[index] for index in honest]
    return Run(
        arm=job.arm.name,
        seed=job.seed,
        fresh=_columns(rounds, "reward_local"),
        training=_columns(rounds, "reward"),
        signal=mean_over_nodes(_signal_shares(rounds, settings)),
        tokens=mean_over_nodes([_running(c) for c in _columns(rounds, "tokens_generated")]),
        seconds=mean_over_nodes([_running(c) for c in _columns(rounds, "step_time")]),
        evaluated=tuple(int(line["round"]) for line in evaluations[0]),
        held_out=_columns(evaluations, "held_out/pass@1"),
        questions=sum(max(one.local, one.questions) for one in settings) / len(settings),
        looked_at=_looked_at(rounds),
    )


def _looked_at(rounds: Sequence[Sequence[Line]]) -> tuple[float, ...]:
    if not all("groups_looked_at" in line for lines in rounds for line in lines):
        return ()
    return mean_over_nodes(_columns(rounds, "groups_looked_at"))


def _by_node(lines: Iterable[Line]) -> tuple[dict[int, list[Line]], dict[int, list[Line]]]:
    """Return the rounds and the evaluations of each node."""
    rounds: dict[int, list[Line]] = defaultdict(list)
    evaluations: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        if line["event"] == "round":
            rounds[line["node"]].append(line)
        elif line["event"] == "held_out":
            evaluations[line["node"]].append(line)
    return rounds, evaluations


def _signal_shares(
    rounds: Sequence[Sequence[Line]], settings: Sequence[Settings]
) -> list[list[float]]:
    """By node, then round: groups with signal as a share of the training set that is aimed at."""
    shares = []
    for groups, node in zip(_columns(rounds, "groups_with_signal"), settings, strict=True):
        wanted = max(1, node.local + node.external)
        shares.append([value / wanted for value in groups])
    return shares


def mean_over_nodes(series: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Average several nodes' series, entry by entry."""
    return tuple(sum(column) / len(column) for column in zip(*series, strict=True))


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """The mean of each value and up to `window` - 1 before it."""
    sums = [0.0, *_running(values)]
    return [
        (sums[end] - sums[max(0, end - window)]) / min(end, window) for end in range(1, len(sums))
    ]


def _columns(by_node: Sequence[Sequence[Line]], name: str) -> tuple[tuple[float, ...], ...]:
    """By node, then line: one of the lines' numbers, 0 where there is none."""
    return tuple(tuple(float(line[name] or 0.0) for line in lines) for lines in by_node)


def _running(values: Sequence[float]) -> list[float]:
    total, sums = 0.0, []
    for value in values:
        total += value
        sums.append(total)
    return sums

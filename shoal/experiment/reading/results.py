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

from shoal.experiment.folder import done_jobs, lines_of
from shoal.experiment.plan import Experiment, Job


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

    @property
    def rounds(self) -> int:
        """Rounds played."""
        return len(self.tokens)


def load_runs(out: Path, experiment: Experiment) -> list[Run]:
    """Read every finished job of the experiment, in its order."""
    return [make_run(job, lines_of(out, job)) for job in done_jobs(out, experiment)]


def make_run(job: Job, lines: Iterable[dict[str, Any]]) -> Run:
    """Sort a job's events into series; nodes that are not honest are left out."""
    honest = [i for i, node in enumerate(job.arm.nodes) if node.behaviour == "honest"]
    rounds: dict[int, list[dict[str, Any]]] = defaultdict(list)
    held: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if line["event"] == "round":
            rounds[line["node"]].append(line)
        elif line["event"] == "held_out":
            held[line["node"]].append(line)
    settings = [job.node_settings(index) for index in honest]
    wanted = [max(1, one.local + one.external) for one in settings]
    by_node = [rounds[index] for index in honest]
    return Run(
        arm=job.arm.name,
        seed=job.seed,
        fresh=tuple(_column(lines, "reward_local") for lines in by_node),
        training=tuple(_column(lines, "reward") for lines in by_node),
        signal=_mean_rows(
            [
                [value / size for value in _column(lines, "groups_with_signal")]
                for lines, size in zip(by_node, wanted, strict=True)
            ]
        ),
        tokens=_mean_rows([_running(_column(lines, "tokens_generated")) for lines in by_node]),
        seconds=_mean_rows([_running(_column(lines, "step_time")) for lines in by_node]),
        evaluated=tuple(int(line["round"]) for line in held[honest[0]]),
        held_out=tuple(_column(held[index], "held_out/pass@1") for index in honest),
        questions=sum(max(one.local, one.questions) for one in settings) / len(settings),
    )


def mean_over_nodes(series: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Average several nodes' series, entry by entry."""
    return _mean_rows(series)


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """The mean of each value and up to `window` - 1 before it."""
    sums = [0.0, *_running(values)]
    return [
        (sums[end] - sums[max(0, end - window)]) / min(end, window) for end in range(1, len(sums))
    ]


def _column(lines: Sequence[dict[str, Any]], name: str) -> tuple[float, ...]:
    return tuple(float(line[name] or 0.0) for line in lines)


def _running(values: Sequence[float]) -> list[float]:
    total, sums = 0.0, []
    for value in values:
        total += value
        sums.append(total)
    return sums


def _mean_rows(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(sum(column) / len(column) for column in zip(*rows, strict=True))

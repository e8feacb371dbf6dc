"""An interrupted job resumes at its last round, as if it had never been interrupted."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from shoal_lab.experiment.plan import Job, uniform_arm
from shoal_lab.experiment.run.in_process import Workers, play
from shoal_lab.experiment.run.journal import SAVE_S, Journal, JournalError
from tests.lab.experiment import jobs

ROUNDS = 4


class Cut(Exception):  # noqa: N818 - what ends a process
    """The process ends here."""


@pytest.fixture(scope="module")
def job() -> Job:
    """Two nodes that share, with adapters."""
    arm = uniform_arm("2/2", 2, local=2, external=2, lora_rank=2, learning_rate=1e-2)
    return jobs.job(arm, rounds=ROUNDS, max_new_tokens=6, eval_every=2, eval_per_family=1)


def run(
    job: Job, shared: Workers, folder: Path, *, cut_after: int = ROUNDS + 1, steps: float = SAVE_S
) -> list[dict[str, Any]]:
    """The lines of a run that ends after a round; a save's clock advances by `steps`."""
    ticks = itertools.count(0.0, steps)
    journal = Journal(folder, job, clock=lambda: next(ticks))
    lines: list[dict[str, Any]] = []

    def emit(line: dict[str, Any]) -> None:
        if line["round"] > cut_after:
            raise Cut
        lines.append(jobs.without_clocks(line))

    done = False
    try:
        play(job, shared, emit, journal=journal)
        done = True
    except Cut:
        pass
    finally:
        journal.close(done=done)
    return lines


def rounds_kept(folder: Path, job: Job) -> int:
    """The last round that the job's next run would look up."""
    journal = Journal(folder, job)
    journal.close(done=False)
    return journal.rounds


@pytest.fixture(scope="module")
def whole(
    job: Job, shared: Workers, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """The lines of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "state"
    lines = run(job, shared, folder)
    assert not folder.exists(), "of a job that is done nothing is kept"
    return lines


@pytest.mark.slow
def test_what_is_taken_up_is_what_was_never_cut(
    job: Job, shared: Workers, tmp_path: Path, whole: list[dict[str, Any]]
) -> None:
    assert {line["event"] for line in whole} == {"round", "held_out", "answers"}
    assert any(line.get("grad_norm") for line in whole), "it trains"
    first = run(job, shared, tmp_path / "cut", cut_after=2)
    assert first == [line for line in whole if line["round"] <= 2]
    second = run(job, shared, tmp_path / "cut", cut_after=3)
    assert second == [line for line in whole if line["round"] <= 3]
    assert run(job, shared, tmp_path / "cut") == whole


@pytest.mark.slow
def test_rounds_since_the_last_save_are_computed_again(
    job: Job, shared: Workers, tmp_path: Path, whole: list[dict[str, Any]]
) -> None:
    run(job, shared, tmp_path / "cut", cut_after=3, steps=0.0)  # saved before the first only
    assert rounds_kept(tmp_path / "cut", job) == 0
    assert run(job, shared, tmp_path / "cut") == whole


def test_damaged_lines_and_those_of_another_job_are_ignored(
    job: Job, shared: Workers, tmp_path: Path
) -> None:
    run(job, shared, tmp_path, cut_after=1)
    assert rounds_kept(tmp_path, job) >= 1
    weights = (tmp_path / "weights.pt").read_bytes()
    kept = (tmp_path / "journal.jsonl").read_bytes()
    for damaged in (weights[:-40], b"", b"no weights"):
        (tmp_path / "weights.pt").write_bytes(damaged)
        assert rounds_kept(tmp_path, job) == -1
        (tmp_path / "journal.jsonl").write_bytes(kept)
    (tmp_path / "weights.pt").write_bytes(weights)
    assert rounds_kept(tmp_path, job) >= 1
    other = Job(arm=job.arm, seed=2, rounds=job.rounds, base=job.base)
    assert rounds_kept(tmp_path, other) == -1


def test_another_course_is_refused(job: Job, shared: Workers, tmp_path: Path) -> None:
    run(job, shared, tmp_path, cut_after=2)
    first, *lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    damaged = json.loads(lines[1])
    damaged["nodes"]["1"]["samples"]["asked"] = "another"
    kept = [first, lines[0], json.dumps(damaged), *lines[2:]]
    (tmp_path / "journal.jsonl").write_text("\n".join(kept) + "\n")
    with pytest.raises(JournalError, match=r"another course.*round 1.*remove it"):
        run(job, shared, tmp_path)

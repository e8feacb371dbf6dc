"""Verifier throughput: completions scored a second by the sandboxed worker, family by family.

This measures what a trainer waits for: coordinates and text go to the worker as frames, it
regenerates the task, finds the answer, scores it and replies. Eight completions a task, as in a
group; half of them right. Task generation is also measured alone, because a family whose tasks are
expensive to generate is expensive to score.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Options, Report, at_least, main, note
from shoal_tasks.families import EASY, PAPER, TRAIN_SEED_MIN, coordinates
from shoal_tasks.spec import AnswerFormat, FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_tasks.types import ScoreRequest, TaskCoordinates, TaskItem
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import FinishReason

COMPLETIONS = 8
TASKS, QUICK_TASKS = 64, 16
REPEATS, QUICK_REPEATS = 3, 1
PROGRAMS = 200
GOAL_PROGRAMS_PER_SECOND = 20.0
"""Two processes are forked for each."""
GOAL_PER_SECOND = 200.0
"""A round of 8 groups of 8 completions should be verified in a third of a second."""


def measure(options: Options) -> Report:
    """Score right and wrong completions of every family through one real worker."""
    families = (*EASY, *PAPER)
    num_tasks = QUICK_TASKS if options.quick else TASKS
    repeats = QUICK_REPEATS if options.quick else REPEATS
    results: dict[str, dict[str, float]] = {}
    with SyncTaskWorker(families) as worker:
        for spec in families:
            note(f"{spec.name} …")
            results[spec.name] = _measure_family(worker, spec, num_tasks, repeats)
    note("code …")
    programs = round(_measure_code(), 1)
    slowest = min(results, key=lambda name: results[name]["scored_per_second"])
    measured = results[slowest]["scored_per_second"]
    paper = min(results[spec.name]["scored_per_second"] for spec in PAPER)
    return Report(
        results={"families": results, "slowest": slowest, "programs_per_second": programs},
        goals=[
            at_least("programs a second, with unit tests", programs, GOAL_PROGRAMS_PER_SECOND),
            at_least(
                "completions a second, slowest of the paper's families", paper, GOAL_PER_SECOND
            ),
            at_least(
                f"completions a second, slowest of all ({slowest})", measured, GOAL_PER_SECOND
            ),
        ],
    )


def _measure_code() -> float:
    """Return how many trivial programs a second pass their unit tests, by one real worker."""
    row = {
        "prompt": 'def double(n):\n    """ Double a number. """\n',
        "entry_point": "double",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
        "canonical_solution": "    return 2 * n\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rows.jsonl").write_text(json.dumps(row))
        file = Path(folder, "code.toml")
        file.write_text('name = "code"\nrows = "rows.jsonl"\nverifier = "tests"\nheld_out = 0\n')
        spec = load_task_file(file)
    requests = [
        ScoreRequest(
            task=coordinates(spec, TRAIN_SEED_MIN),
            text=f"    return {number} + 2 * n - {number}\n",  # a different text each
            finish_reason=FinishReason.STOP,
        )
        for number in range(PROGRAMS)
    ]
    with SyncTaskWorker([spec]) as worker:
        started = time.perf_counter()
        results = worker.score(requests)
        taken = time.perf_counter() - started
    if any(result.reward != 1.0 for result in results):
        raise RuntimeError("code: a right program does not pass")
    return PROGRAMS / taken


def _measure_family(
    worker: SyncTaskWorker, spec: FamilySpec, num_tasks: int, repeats: int
) -> dict[str, float]:
    scored, generated = [], []
    for repeat in range(repeats):
        # Other tasks each time: nothing may come from a cache.
        first = TRAIN_SEED_MIN + repeat * num_tasks
        tasks = [coordinates(spec, first + offset) for offset in range(num_tasks)]
        started = time.perf_counter()
        items = worker.items(tasks)
        generated.append(num_tasks / (time.perf_counter() - started))
        requests = _requests(spec, tasks, items)
        started = time.perf_counter()
        results = worker.score(requests)
        scored.append(len(requests) / (time.perf_counter() - started))
        if any(result.timed_out or result.crashed for result in results):
            raise RuntimeError(f"{spec.name}: the worker failed on an honest completion")
    return {
        "scored_per_second": round(max(scored), 1),
        "generated_per_second": round(max(generated), 1),
    }


def _requests(
    spec: FamilySpec, tasks: Sequence[TaskCoordinates], items: Sequence[TaskItem]
) -> list[ScoreRequest]:
    """Eight completions a task: the generator's own answer, and the same with an extra digit."""
    frame = "{}" if spec.answer_format is AnswerFormat.PLAIN else "So: <answer>{}</answer>"
    return [
        ScoreRequest(
            task=task,
            text=frame.format(answer if number % 2 else f"{answer}1"),
            finish_reason=FinishReason.STOP,
        )
        for task, item in zip(tasks, items, strict=True)
        for answer in [item.answer or "P"]
        for number in range(COMPLETIONS)
    ]


if __name__ == "__main__":
    sys.exit(main("verifier", __doc__ or "", measure))

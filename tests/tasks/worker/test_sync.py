"""The trainer's client: deadlines, kills, restarts, and no processes left behind."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from shoal_tasks.errors import FamilyError, GenerationError, WorkerUnavailable
from shoal_tasks.families import EASY, TRAIN_SEED_MIN, coordinates, draw_coordinates
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.digests import question_digest
from tests.tasks.here import HereWorker

GCD = next(spec for spec in EASY if spec.generator == "gcd")
TASKS = [coordinates(GCD, TRAIN_SEED_MIN + offset) for offset in range(40)]


def test_questions_digests_and_items_agree(worker: SyncTaskWorker) -> None:
    questions = worker.questions(TASKS)
    assert len(set(questions)) > 20
    assert worker.question_digests(TASKS) == [question_digest(text) for text in questions]
    assert [item.question for item in worker.items(TASKS)] == questions
    assert worker.questions([]) == []


def test_the_report_names_every_layer(worker: SyncTaskWorker) -> None:
    assert worker.report is not None
    active = {layer.name for layer in worker.report.layers if layer.active}
    assert {"rlimits", "audit_hook", "process_group"} <= active
    assert len(worker.report.layers) == 10


def test_a_family_that_cannot_be_built_is_named() -> None:
    bad_config = FamilySpec(name="odd", generator="gcd", config={"no_such_option": 1})
    other_version = FamilySpec(name="old", generator="gcd", verifier_version="0.0.1")
    for spec in (bad_config, other_version):
        with pytest.raises(FamilyError, match=spec.name), HereWorker([spec]):
            pass


def test_a_generator_that_fails_on_coordinates_says_so() -> None:
    # Cancelling terms leave zero as a divisor; some seeds hit it.
    spec = FamilySpec(
        name="divides",
        generator="decimal_arithmetic",
        config={
            "min_num_decimal_places": 0,
            "max_num_decimal_places": 0,
            "min_terms": 6,
            "max_terms": 6,
            "precision": 5,
        },
    )
    tasks = [coordinates(spec, seed) for seed in range(1000)]
    with HereWorker([spec]) as worker:
        digests = worker.question_digests(tasks)
        impossible = [task for task, digest in zip(tasks, digests, strict=True) if not digest]
        assert 0 < len(impossible) < 100
        with pytest.raises(GenerationError, match="divides"):
            worker.questions(impossible[:1])
        drawn = worker.draw(random.Random(1), 1000)
        assert len(drawn) == 1000
        # Some of the first thousand seeds were impossible, so sampling continued.
        rng = random.Random(1)
        first = [draw_coordinates(rng, [spec]) for _ in range(1000)]
        assert not {task for task, _ in drawn} <= set(first)
        assert worker.questions([task for task, _ in drawn]) == [text for _, text in drawn]


def test_a_hostile_configuration_meets_the_limits() -> None:
    # A prime sieve over 10^12 numbers asks for more memory and time than the worker has.
    sieve = FamilySpec(
        name="sieve", generator="count_primes", config={"min_n": 10**12, "max_n": 10**12}
    )
    limits = WorkerLimits(item_cpu_seconds=0.3, request_timeout_seconds=10)
    with pytest.raises((FamilyError, WorkerUnavailable)), SyncTaskWorker([sieve], limits=limits):
        pass


def test_files_cannot_be_named_by_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("abcd\n")
    spec = FamilySpec(
        name="reads",
        generator="spell_backward",
        config={"data_file": str(tmp_path / "words"), "min_word_len": 1},
    )
    with pytest.raises(FamilyError, match="reads"), SyncTaskWorker([spec]):
        pass


PARENT = """
import os, signal, sys
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_tasks.families import GAMES_1
idle, stuck = SyncTaskWorker(GAMES_1), SyncTaskWorker(GAMES_1)
pids = idle.start().pid, stuck.start().pid
os.kill(stuck.report.pid, signal.SIGSTOP)
print(*pids, flush=True)
sys.stdin.read()
"""


def test_a_killed_parent_takes_the_worker_along_idle_or_stuck() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdout is not None
    children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    parent.kill()
    parent.communicate(timeout=30)
    _, alive = psutil.wait_procs(children, timeout=30)
    for child in alive:
        child.kill()
    assert not alive, "a worker outlived its parent"


def test_a_task_that_is_only_too_slow_here_is_no_verdict() -> None:
    # Each task takes a hundred milliseconds and more.
    huge = FamilySpec(name="h", generator="binary_matrix", config={"min_n": 400, "max_n": 400})
    with HereWorker([huge], limits=WorkerLimits(item_cpu_seconds=0.005)) as worker:
        with pytest.raises(WorkerUnavailable, match="too long"):
            worker.question_digests([coordinates(huge, seed) for seed in range(8)])
        with pytest.raises(GenerationError):
            worker.questions([coordinates(huge, 0)])

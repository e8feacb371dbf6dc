"""Trainers in processes of their own that can be killed, and what to compare of them.

The processes fork from a server that has torch loaded already, so that one costs a fraction of a
second. Questions are real ones, drawn beforehand; rewards follow a rule (`SteeredTasks`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from shoal_policy.checkpoint.saved import latest_checkpoint
from shoal_policy.tasks import TaskSource
from shoal_tasks.families import coordinates
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import GroupRequest, ScoreResult, Split, TaskCoordinates

PATIENCE_S = 60.0
SHARE_OF_TIME = ("step_time", "seconds_generate", "seconds_update", "held_out/seconds")
"""The fields in which no two runs agree."""


class PooledWorker:
    """Questions from a pool, rewards by a rule on the text: no process behind it."""

    def __init__(self, drawn: Sequence[tuple[TaskCoordinates, str]]) -> None:
        self._drawn = list(drawn)

    def draw(
        self, rng: random.Random, count: int, *, families: Sequence[FamilySpec] = ()
    ) -> list[tuple[TaskCoordinates, str]]:
        """Draw from the pool, whatever the weights."""
        return [rng.choice(self._drawn) for _ in range(count)]

    def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """Any question does for an evaluation."""
        return [self._drawn[task.seed % len(self._drawn)][1] for task in tasks]

    def held_out(
        self, per_family: int, *, families: Sequence[FamilySpec]
    ) -> list[tuple[TaskCoordinates, str]]:
        """Some of each family for evaluations."""
        tasks = [coordinates(spec, seed) for spec in families for seed in range(per_family)]
        return list(zip(tasks, self.questions(tasks), strict=True))

    def parts(self, tasks: Sequence[TaskCoordinates]) -> list[Split]:
        """All are for training."""
        return [Split.TRAINING] * len(tasks)

    def questions_and_splits(self, tasks: Sequence[TaskCoordinates]) -> list[tuple[str, Split]]:
        """Questions of the pool, all for training."""
        return list(zip(self.questions(tasks), self.parts(tasks), strict=True))

    def score_groups(self, groups: Sequence[GroupRequest]) -> list[list[ScoreResult]]:
        """Half of all texts are right, which half is the text's own."""
        return [
            [
                ScoreResult(reward=float(hashlib.sha256(text.encode()).digest()[0] % 2))
                for text, _ in group.answers
            ]
            for group in groups
        ]


def context() -> Any:
    """The fork server, with all that takes long to import."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["tests.policy.training_cases", "shoal_policy.trainer"])
    return made


@functools.cache
def pool() -> tuple[tuple[TaskCoordinates, str], ...]:
    """Real questions with their coordinates."""
    from tests.support import factories as make

    return tuple(make.real_worker().draw(random.Random(5), 40))


def start(data_dir: Path, model: str, *, trap: int = 0, **changes: Any) -> Any:
    """Start a trainer and wait until it hears signals.

    `trap`: kill -9 at that flush of a checkpoint.
    """
    data_dir.mkdir(exist_ok=True)
    hearing, received = context().Pipe(duplex=False)
    process = context().Process(
        target=_main, args=(received, data_dir, model, pool(), trap, changes), daemon=True
    )
    process.start()
    received.close()
    assert hearing.poll(PATIENCE_S), "the trainer does not start"
    hearing.close()
    return process


def finish(process: BaseProcess) -> int:
    """Wait for the end; return the exit code."""
    process.join(PATIENCE_S)
    assert process.exitcode is not None, "the trainer does not end"
    return process.exitcode


def run(data_dir: Path, model: str, **changes: Any) -> int:
    """Run a trainer to its end; return the exit code."""
    return finish(start(data_dir, model, **changes))


def start_command(flags: Sequence[str], **environment: str) -> Any:
    """Start `shoal trainer` with `flags`, its task worker and all, and return its process."""
    process = context().Process(target=_run_command, args=(list(flags), environment), daemon=True)
    process.start()
    return process


def _run_command(flags: list[str], environment: dict[str, str]) -> None:
    from shoal_policy.__main__ import main

    for variable in [name for name in os.environ if name.startswith("SHOAL_")]:
        del os.environ[variable]
    os.environ.update(environment)
    with Path(os.devnull).open("w") as sys.stdout:
        os._exit(main(flags))


def _main(
    received: Any,
    data_dir: Path,
    model: str,
    drawn: Sequence[tuple[TaskCoordinates, str]],
    trap: int,
    changes: dict[str, Any],
) -> None:
    from shoal_policy.trainer import Trainer
    from tests.policy import training_cases as case
    from tests.support import factories as make

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    received.close()
    sys.stderr = (data_dir / "log.txt").open("a")
    if trap:
        _set_trap(trap)
    worker: Any = PooledWorker(drawn)
    trainer = Trainer(
        case.settings(data_dir, model, **{"log": "none", "eval_every": 2, **changes}),
        case.surroundings(tasks=TaskSource(worker, make.SPECS), should_stop=stop.is_set),
        seed=1,
    )
    trainer.run()
    os._exit(0)


def _set_trap(flushes: int) -> None:
    from shoal_policy.checkpoint import saving as checkpoint

    flush, seen = checkpoint.sync, 0  # type: ignore[attr-defined]

    def counting(path: Path) -> None:
        nonlocal seen
        seen += 1
        if seen == flushes:
            os.kill(os.getpid(), signal.SIGKILL)
        flush(path)

    checkpoint.sync = counting  # type: ignore[attr-defined]


def newest(data_dir: Path) -> Path:
    """The checkpoint that a start would take."""
    found = latest_checkpoint(data_dir).path
    assert found is not None
    return found


def rounds_saved(data_dir: Path) -> int:
    """Rounds in the newest checkpoint; 0 without one."""
    found = latest_checkpoint(data_dir).path
    return 0 if found is None else int(found.name.split("-")[1].split(".")[0])


def course(data_dir: Path) -> list[dict[str, Any]]:
    """All that `metrics.jsonl` says, but for time."""
    from tests.policy.training_cases import metrics

    return [{k: v for k, v in row.items() if k not in SHARE_OF_TIME} for row in metrics(data_dir)]


def assert_same_end(one: Path, other: Path) -> None:
    """Both runs wrote the same figures and ended with the same weights, to the last bit."""
    import torch

    assert course(one) == course(other)
    first, second = newest(one), newest(other)
    assert first.name == second.name
    name = "model/model.safetensors"
    assert (first / name).read_bytes() == (second / name).read_bytes()
    states = [torch.load(at / "optimizer.pt", weights_only=True) for at in (first, second)]
    assert _flat(states[0]) == _flat(states[1])
    documents = [json.loads((at / "state.json").read_text()) for at in (first, second)]
    for document in documents:
        for evaluation in ("held_out", "held_out_initial"):
            document["counters"][evaluation].pop("seconds")
    assert documents[0] == documents[1]


def _flat(state: Any) -> Any:
    if hasattr(state, "tolist"):
        return state.tolist()
    if isinstance(state, dict):
        return {key: _flat(value) for key, value in state.items()}
    return [_flat(value) for value in state] if isinstance(state, list | tuple) else state

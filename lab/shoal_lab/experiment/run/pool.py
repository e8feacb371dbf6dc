"""Runs jobs in worker processes and stores their results: each job once, in a file of its own.

    jobs ──▶ worker process ─▶ rounds/ARM/seed-S.jsonl.part ──complete──▶ …/seed-S.jsonl
                 │ one torch thread, one sandboxed task worker
                 └─ progress over a pipe ─▶ parent

A complete file that names the same job is not made again, so an interrupted experiment continues
where it stopped. An interrupted job resumes from its last minute if rounds are expensive
(`shoal_lab.experiment.run.journal`); one of an embedded model starts again.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing as mp
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

from shoal_base.children import inherited
from shoal_base.collector import spare_collector
from shoal_base.lines import guard_process
from shoal_lab.experiment.folder import STATE, is_done
from shoal_lab.experiment.made_by import last_line
from shoal_lab.experiment.plan import Job
from shoal_settings.loader import is_small

if TYPE_CHECKING:  # it brings torch, which takes seconds
    from shoal_lab.experiment.run.in_process import Workers

_STOP_SECONDS = 5.0  # then it is killed; a guess
WRITTEN = ("round", "held_out", "answers")
"""Events that a job's file has."""


class JobFailed(Exception):  # noqa: N818 - reported to the user
    """A job could not be run; the text is one line."""


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    job: Job | None = None


@dataclass(slots=True, kw_only=True)
class Pool:
    """A bounded set of worker processes."""

    out: Path
    num_workers: int
    """0 runs jobs in this process."""
    on_progress: Callable[[Job, int], None] = lambda _job, _rounds: None
    """Called with a job and the rounds it has run so far."""
    _workers: list[_Worker] = field(default_factory=list)

    def run(self, jobs: Sequence[Job]) -> None:
        """Run every job that is not on disk yet.

        Raises:
            JobFailed: the first that cannot be run; the others are stopped.
            KeyboardInterrupt: finished jobs stay on disk.
        """
        waiting = [job for job in jobs if not is_done(self.out, job)]
        if not self.num_workers:
            return self._run_here(waiting)
        try:
            for _ in range(min(self.num_workers, len(waiting))):
                self._workers.append(_start(self.out))
            for worker in self._workers:
                _give(worker, waiting.pop(0))
            while any(worker.job is not None for worker in self._workers):
                self._step(waiting)
        finally:
            self._stop()

    def _run_here(self, jobs: Sequence[Job]) -> None:
        import torch

        from shoal_lab.experiment.run.in_process import workers

        torch.set_num_threads(1)  # the models are small, and results must not depend on it
        with workers() as shared:
            for job in jobs:
                on_round = partial(self.on_progress, job)
                try:
                    _play_to_file(job, self.out, shared, on_round)
                except Exception as error:
                    raise JobFailed(f"{job.file_name}: {_one_line(error)}") from error

    def _step(self, waiting: list[Job]) -> None:
        ready = wait([worker.pipe for worker in self._workers if worker.job is not None])
        for worker in self._workers:
            if worker.pipe not in ready or worker.job is None:
                continue
            try:
                kind, value = worker.pipe.recv()
            except (EOFError, OSError):
                raise JobFailed(f"the process of {worker.job.file_name} died") from None
            if kind == "round":
                self.on_progress(worker.job, value)
            elif kind == "done":
                worker.job = None
                if waiting:
                    _give(worker, waiting.pop(0))
            else:
                raise JobFailed(f"{worker.job.file_name}: {value}")

    def _stop(self) -> None:
        for worker in self._workers:
            worker.pipe.close()  # an idle one ends by itself
            if worker.job is not None:
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join(_STOP_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()


def _start(out: Path) -> _Worker:
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, out), daemon=False)
    with inherited():
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _give(worker: _Worker, job: Job) -> None:
    worker.job = job
    worker.pipe.send(job)


def _work(pipe: Connection, out: Path) -> None:
    """The life of a worker process: jobs from the pipe until it closes."""
    guard_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    from shoal_lab.experiment.run.in_process import workers

    torch.set_num_threads(1)
    spare_collector()  # as a node and a trainer do
    with workers() as shared, contextlib.suppress(EOFError, OSError):
        while True:
            job = pipe.recv()
            try:
                _play_to_file(job, out, shared, lambda number: pipe.send(("round", number)))
            except BrokenPipeError:
                raise
            except Exception as error:  # noqa: BLE001  reported to the parent, which ends the run
                pipe.send(("failed", _one_line(error)))
            else:
                pipe.send(("done", None))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _play_to_file(job: Job, out: Path, shared: Workers, on_round: Callable[[int], None]) -> None:
    from shoal_lab.experiment.run.in_process import rounded

    path = out / job.file_name
    part = path.with_name(f"{path.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    last = last_line()  # of the code as it was loaded: hours later the checkout may hold another
    reported = 0
    with part.open("w") as file:
        file.write(json.dumps(job.to_json()) + "\n")

        def emit(line: dict[str, object]) -> None:
            nonlocal reported
            if line["event"] in WRITTEN:
                file.write(json.dumps(rounded(line)) + "\n")
            number = line["round"]
            if isinstance(number, int) and number > reported:
                reported = number
                file.flush()
                on_round(number)

        _play(job, out, shared, emit)
        file.write(json.dumps(last) + "\n")
    part.replace(path)


def _play(job: Job, out: Path, shared: Workers, emit: Callable[[dict[str, object]], None]) -> None:
    from shoal_lab.experiment.run.in_process import play
    from shoal_lab.experiment.run.journal import Journal

    if is_small(job.node_settings(0).model):
        return play(job, shared, emit)
    state = out / STATE
    journal = Journal(state / Path(job.file_name).with_suffix(""), job)
    done = False
    try:
        play(job, shared, emit, journal=journal, keep_in=state)
        done = True
    finally:
        journal.close(done=done)

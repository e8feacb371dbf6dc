"""`shoal experiment`: runs an experiment and summarises it."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from shoal.counted import Counted
from shoal_base.extras import missing_for_trainer
from shoal_base.lines import say, say_json, say_lines
from shoal_base.terminal import Terminal
from shoal_lab.experiment.flags import EMBEDDED, UsageError, make_experiment, parser, rates_of
from shoal_lab.experiment.folder import (
    CONFIG,
    SWEEP,
    holds_experiment,
    is_done,
    remove,
    write_config,
)
from shoal_lab.experiment.made_by import as_typed
from shoal_lab.experiment.plan import Experiment
from shoal_lab.experiment.presets import PRESETS
from shoal_lab.experiment.progress import JobProgress
from shoal_lab.experiment.registered import register
from shoal_lab.experiment.report.comparison import MERIT, TESTS
from shoal_lab.experiment.report.output import report
from shoal_lab.experiment.report.results import load_runs
from shoal_lab.experiment.run.pool import JobFailed, Pool
from shoal_lab.experiment.setup.unlike_real import MissingModel
from shoal_lab.experiment.tune import best_rates, sweep, tuned
from shoal_lab.experiment.tune import markdown as sweep_table
from shoal_settings.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, fail
from shoal_wire.errors import ManifestError


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal experiment`; return the exit code."""
    arguments = parser().parse_args(argv)
    arguments.command = as_typed(sys.argv[2:] if argv is None else argv)
    if (missing := missing_for_trainer()) is not None:
        return fail("experiment", missing).code
    try:
        experiment = make_experiment(arguments)
        out = _output_folder(arguments)
        with _alone_in(out):
            if arguments.fresh:
                remove(out)
            return run(experiment, out, arguments)
    except (UsageError, MissingModel, ManifestError) as error:
        return fail("experiment", str(error)).code
    except (JobFailed, OSError) as error:
        return fail("experiment", str(error), EXIT_FAILED).code


@contextlib.contextmanager
def _alone_in(out: Path) -> Iterator[None]:
    """Own the output folder, and treat SIGTERM like Ctrl-C, so that workers end with this
    process."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    out.mkdir(parents=True, exist_ok=True)
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with (out / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"another experiment is writing to {out}") from None
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(experiment: Experiment, out: Path, arguments: argparse.Namespace) -> int:
    """Run the jobs that are not on disk yet, then write and show the summary."""
    write_config(out, experiment, arguments.command)
    preset = PRESETS[arguments.preset]
    rates = () if arguments.tune is None else rates_of(arguments.tune)
    register(out, experiment, merit=MERIT, tests=TESTS, rates=rates)
    code = EXIT_OK
    try:
        preset.prepare()
        if arguments.tune is not None:
            experiment = _tune(experiment, out, arguments)
        _play(experiment, out, arguments.jobs)
    except KeyboardInterrupt:
        say("shoal experiment: interrupted; this is what there is", error=True)
        code = EXIT_INTERRUPTED
    table, document = report(out, experiment, preset.title, figures=not arguments.no_figures)
    if arguments.json:
        say_json({"schema_version": 1, **document})
        return code
    console = Terminal()
    if table is None:
        say("no job is finished yet")
        return code
    console.print(table(console.width))
    say(f"table, figures, numbers and every round: {out}")
    return code


def _tune(experiment: Experiment, out: Path, arguments: argparse.Namespace) -> Experiment:
    """Sweep the learning rates; return the comparison with every arm at its best."""
    rates = rates_of(arguments.tune)
    swept = sweep(experiment, rates)
    _play(swept, out, arguments.jobs)
    runs = load_runs(out, swept)
    table = sweep_table(experiment, rates, runs)
    (out / SWEEP).write_text(table)
    if not arguments.json:
        say_lines(table)
    chosen = tuned(experiment, best_rates(experiment, rates, runs))
    write_config(out, chosen, arguments.command)
    return chosen


def _output_folder(arguments: argparse.Namespace) -> Path:
    name = arguments.preset + ("-quick" if arguments.quick else "")
    out: Path = arguments.out or Path(".shoal") / "experiment" / name
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a folder")
    if not holds_experiment(out):
        if (out / CONFIG).exists():
            raise UsageError(f"{out / CONFIG} is not an experiment's; name another folder (--out)")
        if arguments.fresh and out.exists():
            raise UsageError(f"{out} holds no experiment; --fresh removes nothing else")
    return out


def _default_jobs(experiment: Experiment) -> int:
    """One worker for each core; models that are not tiny run one at a time."""
    if experiment.base.get("model") not in EMBEDDED:
        return 1
    return max(1, len(os.sched_getaffinity(0)))


def _play(experiment: Experiment, out: Path, num_workers: int | None) -> None:
    jobs = experiment.jobs()
    if num_workers is None:
        num_workers = _default_jobs(experiment)
    left = sum(job.rounds for job in jobs if not is_done(out, job))
    with Counted("rounds", left, stays=True) as counted:
        Pool(out=out, num_workers=num_workers, on_progress=JobProgress(counted)).run(jobs)

"""`shoal experiment`: flags to an `Experiment`; run it, sum it up."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from shoal.experiment.folder import is_done, write_config
from shoal.experiment.paper.arms import FILTERED, ratio_arm
from shoal.experiment.paper.tune import RATES, best_rates, sweep, tuned
from shoal.experiment.paper.tune import markdown as sweep_table
from shoal.experiment.plan import SILO, Arm, Experiment, check_settings
from shoal.experiment.playing.pool import JobFailed, Pool
from shoal.experiment.presets import PRESETS, REAL, Preset
from shoal.experiment.progress import Narrator
from shoal.experiment.reading.report import write_report
from shoal.experiment.reading.results import load_runs
from shoal.experiment.reading.table import rich_table
from shoal_settings.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, fail
from shoal_settings.schema import Settings
from shoal_wire.errors import ManifestError

DESCRIPTION = """\
Does sharing help? Runs swarms that share and silos that do not, by the code that nodes run, and
says what came of it: a table, figures, and every round as JSON, in one folder. Ctrl-C gives what
there is; the same command goes on from there. docs/experiments.md has results and definitions."""

EMBEDDED = ("tiny", "tiny-sparse")


class UsageError(Exception):
    """A flag that cannot be used; one line."""


def parser() -> argparse.ArgumentParser:
    """Return the command's flags."""
    made = argparse.ArgumentParser(
        prog="shoal experiment",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(f"{name} ({preset.title})" for name, preset in PRESETS.items())
    made.add_argument("preset", choices=sorted(PRESETS), help=names)
    made.add_argument("--quick", action="store_true", help="fewer seeds and rounds: minutes")
    made.add_argument("--out", type=Path, metavar="DIR", help="output folder")
    made.add_argument("--json", action="store_true", help="print one JSON object at the end")
    made.add_argument("--seeds", type=int, metavar="N", help="seeds 1 to N")
    made.add_argument("--rounds", type=int, metavar="N", help="rounds of each node")
    made.add_argument("--nodes", type=int, metavar="N", help="nodes of each swarm")
    made.add_argument(
        "--arm",
        action="append",
        metavar="I/J[,KEY=VALUE…]",
        help=f"compare these arms, {SILO} always among them; repeatable. `filtered` is the silo "
        "that asks twice as much and trains on groups with signal",
    )
    made.add_argument("--strategy", help="how others' groups are chosen, in every arm")
    made.add_argument("--model", help="model of every node: embedded, hub name or folder")
    made.add_argument("--tasks", help="task preset")
    made.add_argument(
        "--tune",
        nargs="?",
        const=",".join(f"{rate:g}" for rate in RATES),
        metavar="RATE,RATE…",
        help="find each arm's best learning rate first, on other seeds, and compare at those "
        "(default: %(const)s)",
    )
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting of docs/settings.md, in every node; repeatable",
    )
    mode = made.add_mutually_exclusive_group()
    mode.add_argument(
        "--in-process",
        action="store_true",
        help="a swarm in memory, deterministic from its seed (default)",
    )
    mode.add_argument(
        "--swarm", action="store_true", help="real nodes and trainers on this machine's loopback"
    )
    made.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="worker processes (default: one for each CPU core); 0 works in this one",
    )
    made.add_argument(
        "--fresh", action="store_true", help="remove the output folder first; else it goes on"
    )
    made.add_argument("--no-figures", action="store_true", help="table and JSON only")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shoal experiment`; return the exit code."""
    arguments = parser().parse_args(argv)
    try:
        experiment = make_experiment(arguments)
        out = _output_folder(arguments)
        with _alone_in(out):
            return run(experiment, out, arguments)
    except (UsageError, ManifestError) as error:
        return fail("experiment", str(error)).code
    except (JobFailed, OSError) as error:
        return fail("experiment", str(error), EXIT_FAILED).code


@contextlib.contextmanager
def _alone_in(out: Path) -> Iterator[None]:
    """Own the output folder; be told of SIGTERM as of Ctrl-C, so that workers end with us."""

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
    """Play what is not on disk yet, then write and show the summary."""
    write_config(out, experiment)
    code = EXIT_OK
    try:
        PRESETS[arguments.preset].prepare()
        if arguments.tune:
            experiment = _tune(experiment, out, arguments)
        _play(experiment, out, arguments.jobs)
    except KeyboardInterrupt:
        print("shoal experiment: interrupted; this is what there is", file=sys.stderr)
        code = EXIT_INTERRUPTED
    table, document = _report(experiment, out, arguments)
    if arguments.json:
        print(json.dumps(document))
        return code
    console = Console(highlight=False)
    if table is None:
        print("no job is finished yet")
        return code
    console.print(table(console.width))
    if not document["figures"] and not arguments.no_figures:
        print("no figures: pip install 'shoal[experiment]'")
    print(f"table, figures, numbers and every round: {out}")
    return code


def _report(
    experiment: Experiment, out: Path, arguments: argparse.Namespace
) -> tuple[Callable[[int], Table] | None, dict[str, Any]]:
    """Write the summary; return the terminal's table, given its width, and the JSON object."""
    preset = PRESETS[arguments.preset]
    if preset.report is not None:
        return preset.report(out, experiment, not arguments.no_figures)
    title = preset.title
    summaries, document = write_report(out, experiment, figures=not arguments.no_figures)
    if not summaries:
        return None, document
    return lambda width: rich_table(summaries, title, width), document


def _tune(experiment: Experiment, out: Path, arguments: argparse.Namespace) -> Experiment:
    """Sweep the learning rates; return the comparison with every arm at its best."""
    rates = _rates(arguments.tune)
    swept = sweep(experiment, rates)
    _play(swept, out, arguments.jobs)
    runs = load_runs(out, swept)
    table = sweep_table(experiment, rates, runs)
    (out / "sweep.md").write_text(table)
    if not arguments.json:
        print(table)
    chosen = tuned(experiment, best_rates(experiment, rates, runs))
    write_config(out, chosen)
    return chosen


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--tune {text!r}: not numbers with commas between them") from None
    if not all(0 < rate <= 1 for rate in rates) or len(set(rates)) != len(rates):
        raise UsageError("--tune: learning rates are above 0, at most 1, and each named once")
    return rates


def make_experiment(arguments: argparse.Namespace) -> Experiment:
    """Return what the flags ask for. Raises UsageError."""
    preset = PRESETS[arguments.preset]
    size = preset.quick if arguments.quick else preset.full
    num_nodes = preset.nodes if arguments.nodes is None else arguments.nodes
    seeds = size.seeds if arguments.seeds is None else arguments.seeds
    rounds = size.rounds if arguments.rounds is None else arguments.rounds
    if not (1 <= num_nodes <= 64 and seeds >= 1 and rounds >= 1):
        raise UsageError("--nodes is 1 to 64; --seeds and --rounds are at least 1")
    if arguments.jobs is not None and arguments.jobs < 0:
        raise UsageError("--jobs is at least 0")
    arms = (size.arms or preset.arms)(num_nodes)
    if arguments.arm:
        arms = _chosen_arms(arguments.arm, arms, num_nodes)
    experiment = Experiment(
        name=arguments.preset + ("-quick" if arguments.quick else ""),
        arms=arms,
        seeds=tuple(range(1, seeds + 1)),
        rounds=rounds,
        base=_base(arguments, preset),
        swarm=arguments.swarm,
    )
    try:
        check_settings(experiment)
    except ValidationError as error:
        raise UsageError(_first_line(error)) from None
    return experiment


def _base(arguments: argparse.Namespace, preset: Preset) -> dict[str, Any]:
    base = dict(preset.base)
    if arguments.model is not None and arguments.model not in EMBEDDED:
        base |= REAL
    named = {"model": arguments.model, "tasks": arguments.tasks, "strategy": arguments.strategy}
    given = [f"{key}={value}" for key, value in named.items() if value is not None]
    return base | _settings([*given, *arguments.set])


def _chosen_arms(texts: Sequence[str], known: Sequence[Arm], num_nodes: int) -> tuple[Arm, ...]:
    arms = [_arm(text, num_nodes, known) for text in texts]
    if len({arm.name for arm in arms}) != len(arms):
        raise UsageError("--arm names one arm twice")
    if SILO in {arm.name for arm in known} and all(arm.name != SILO for arm in arms):
        arms.insert(0, next(arm for arm in known if arm.name == SILO))
    return tuple(arms)


def _arm(text: str, num_nodes: int, known: Sequence[Arm]) -> Arm:
    name, *changes = text.split(",")
    if name in ("filtered", FILTERED):
        name = FILTERED
    found = next((arm for arm in known if arm.name == name), None)
    if found is None:
        try:
            found = ratio_arm(name, num_nodes)
        except ValueError:
            raise UsageError(f"--arm {text!r}: not I/J, such as 4/4") from None
    settings = _settings(changes)
    full = " ".join([name, *changes])
    return replace(found.with_settings(**settings), name=full)


def _settings(texts: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE texts as values of the settings' own types."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or key not in Settings.model_fields:
            raise UsageError(f"{text!r} is not KEY=VALUE with a key of docs/settings.md")
        try:
            made = getattr(Settings.model_validate({key: value}), key)
        except ValidationError as error:
            raise UsageError(_first_line(error)) from None
        found[key] = list(made) if isinstance(made, tuple) else made
    return found


def _first_line(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"


def _output_folder(arguments: argparse.Namespace) -> Path:
    name = arguments.preset + ("-quick" if arguments.quick else "")
    out: Path = arguments.out or Path(".shoal") / "experiment" / name
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a folder")
    if arguments.fresh and out.exists():
        if not (out / "config.json").exists():
            raise UsageError(f"{out} holds no experiment; --fresh removes nothing else")
        shutil.rmtree(out)
    return out


def _default_jobs(experiment: Experiment) -> int:
    """One worker for each core; models that are not tiny have the machine to themselves."""
    if experiment.swarm or experiment.base.get("model") not in EMBEDDED:
        return 1
    return max(1, len(os.sched_getaffinity(0)))


def _play(experiment: Experiment, out: Path, num_workers: int | None) -> None:
    jobs = experiment.jobs()
    if num_workers is None:
        num_workers = _default_jobs(experiment)
    left = sum(job.rounds for job in jobs if not is_done(out, job))
    with Narrator(num_rounds=left) as narrator:
        Pool(out=out, num_workers=num_workers, on_progress=narrator).run(jobs)

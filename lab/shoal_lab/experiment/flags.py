"""The flags of `shoal experiment`, and the `Experiment` that they ask for. Starts nothing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from shoal_lab.experiment.plan import (
    FILTERED,
    SILO,
    Arm,
    Experiment,
    check_settings,
    ratio_arm,
    refusal,
)
from shoal_lab.experiment.presets import PRESETS, REAL, Preset
from shoal_lab.experiment.tune import RATES
from shoal_settings.early import refusal_of_device, refusal_of_model
from shoal_settings.groups import choices_of
from shoal_settings.loader import PLAYS, is_small
from shoal_settings.parser import Parser, path
from shoal_settings.real_models import fill_in
from shoal_settings.schema import Settings
from shoal_settings.strategy import describe_words

DESCRIPTION = """\
Does sharing help? Runs swarms that share and silos that do not, by the code that nodes run, and
says what came of it: a table, figures, and every round as JSON, in one folder. Ctrl-C gives what
there is; the same command resumes. docs/results.md says what came of it.

  shoal experiment results --quick   minutes on two CPU cores; without: hours"""

MAX_EXPERIMENT_SEED = 1 << 31
MAX_NODES = 64  # a swarm in memory on one core; a guess
MAX_DELAY = 10_000  # rounds; longer than any experiment
MAX_SEEDS = 10_000  # more than any experiment uses
MAX_ROUNDS = 10_000_000  # more than any experiment uses
MAX_JOBS = 1024  # more than any machine has cores
EMBEDDED = ("tiny", "tiny-sparse", "tiny-games")


class UsageError(Exception):
    """A flag that cannot be used; one line."""


def parser() -> argparse.ArgumentParser:
    """Return the command's flags."""
    made = Parser(
        prog="shoal experiment",
        description=DESCRIPTION,
        first=("quick", "out", "seeds", "rounds", "nodes", "arm", "model", "set", "jobs", "json"),
    )
    names = ", ".join(f"{name} ({preset.title})" for name, preset in PRESETS.items())
    made.add_argument("preset", choices=sorted(PRESETS), help=names)
    made.add_argument("--quick", action="store_true", help="fewer seeds and rounds: minutes")
    made.add_argument("--out", type=path, metavar="DIR", help="output folder")
    made.add_argument("--json", action="store_true", help="print one JSON object at the end")
    made.add_argument("--seeds", type=int, metavar="N", help="number of seeds, from 1 on")
    made.add_argument(
        "--first-seed",
        type=int,
        metavar="N",
        help="first seed (a default chosen on some seeds is reported on other seeds)",
    )
    made.add_argument("--seed-list", metavar="N,N…", help="these seeds, instead of both")
    made.add_argument("--rounds", type=int, metavar="N", help="rounds of each node")
    made.add_argument("--nodes", type=int, metavar="N", help="nodes of each swarm")
    _add_what_is_compared(made)
    _add_how_it_is_played(made)
    return made


def _add_what_is_compared(parser: argparse.ArgumentParser) -> None:
    made = parser.add_argument_group("what is compared")
    made.add_argument(
        "--arm",
        action="append",
        metavar="I/J[,KEY=VALUE…]",
        help=f"compare these arms, {SILO} always among them; repeatable. `filtered` is the silo "
        "that generates twice as many groups and trains on those with signal; KEY is a setting, "
        "`nodes` (of this arm) or `delay` (rounds until other nodes receive what a node shares)",
    )
    made.add_argument(
        "--strategy", help=f"how external groups are chosen, in every arm: {describe_words()}"
    )
    made.add_argument("--model", help="model of every node: embedded, hub name or folder")
    made.add_argument("--tasks", help=f"a preset ({', '.join(choices_of('tasks'))}), or FILE.toml")
    made.add_argument(
        "--tune",
        nargs="?",
        const=",".join(f"{rate:g}" for rate in RATES),
        metavar="RATE,RATE…",
        help="find each arm's best learning rate first, on seeds 101 and 102, and compare the arms "
        "at their best; an arm that names a rate keeps it (default: %(const)s)",
    )
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting of docs/settings.md, in every node; repeatable",
    )


def _add_how_it_is_played(parser: argparse.ArgumentParser) -> None:
    made = parser.add_argument_group("how it is played")
    made.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="worker processes (default: one for each CPU core); 0 works in this one",
    )
    made.add_argument(
        "--fresh",
        action="store_true",
        help="remove an experiment's files from the output folder first, instead of resuming",
    )
    made.add_argument("--no-figures", action="store_true", help="table and JSON only")


def make_experiment(arguments: argparse.Namespace) -> Experiment:
    """Return the experiment that the flags describe. Raises UsageError."""
    preset = PRESETS[arguments.preset]
    size = preset.quick if arguments.quick else preset.full
    num_nodes = preset.nodes if arguments.nodes is None else arguments.nodes
    seeds = _seeds(arguments, size.seeds)
    rounds = size.rounds if arguments.rounds is None else arguments.rounds
    _check_counts(num_nodes=num_nodes, seeds=len(seeds), rounds=rounds, jobs=arguments.jobs)
    arms = (size.arms or preset.arms)(num_nodes)
    if arguments.arm:
        arms = _chosen_arms(arguments.arm, arms, num_nodes)
    experiment = Experiment(
        name=arguments.preset + ("-quick" if arguments.quick else ""),
        arms=arms,
        seeds=seeds,
        rounds=rounds,
        base=_base(arguments, preset),
    )
    try:
        check_settings(experiment)
    except ValidationError as error:
        raise UsageError(_first_line(error)) from None
    preset.write_tasks()
    for job in experiment.jobs()[: len(arms)]:
        if (reason := refusal(job)) is not None:
            raise UsageError(f"arm {job.arm.name!r}: {reason}")
    return experiment


def _seeds(arguments: argparse.Namespace, usual: int) -> tuple[int, ...]:
    if arguments.seed_list is None:
        count = usual if arguments.seeds is None else arguments.seeds
        if count > MAX_SEEDS:
            raise UsageError(f"--seeds is at most {MAX_SEEDS:,}")
        first = 1 if arguments.first_seed is None else arguments.first_seed
        seeds = tuple(range(first, first + count))
    elif arguments.seeds is not None or arguments.first_seed is not None:
        raise UsageError("--seed-list names every seed: leave out --seeds and --first-seed")
    else:
        try:
            seeds = tuple(int(part) for part in arguments.seed_list.split(","))
        except ValueError:
            raise UsageError(
                f"--seed-list {arguments.seed_list!r}: not whole numbers with commas between them"
            ) from None
    if len(set(seeds)) != len(seeds):
        raise UsageError("--seed-list names one seed twice")
    if not all(0 < seed <= MAX_EXPERIMENT_SEED for seed in seeds):
        raise UsageError(f"seeds are 1 to {MAX_EXPERIMENT_SEED:,}")
    return seeds


def _check_counts(*, num_nodes: int, seeds: int, rounds: int, jobs: int | None) -> None:
    if not (1 <= num_nodes <= MAX_NODES and seeds >= 1 and rounds >= 1):
        raise UsageError(f"--nodes is 1 to {MAX_NODES}; --seeds and --rounds are at least 1")
    if rounds > MAX_ROUNDS:
        raise UsageError(f"--rounds is at most {MAX_ROUNDS:,}")
    if jobs is not None and not 0 <= jobs <= MAX_JOBS:
        raise UsageError(f"--jobs is 0 to {MAX_JOBS}")


def rates_of(text: str) -> tuple[float, ...]:
    """Return the learning rates that `--tune` names. Raises UsageError."""
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--tune {text!r}: not numbers with commas between them") from None
    if not all(0 < rate <= 1 for rate in rates) or len(set(rates)) != len(rates):
        raise UsageError("--tune: learning rates are above 0, at most 1, and each named once")
    return rates


def _base(arguments: argparse.Namespace, preset: Preset) -> dict[str, Any]:
    named = {"model": arguments.model, "tasks": arguments.tasks, "strategy": arguments.strategy}
    texts = [f"{key}={value}" for key, value in named.items() if value is not None]
    chosen = _settings([*texts, *arguments.set])
    base = dict(preset.base)
    played = [PLAYS[one] for one in chosen.get("tasks", ()) if one in PLAYS]
    if played and "model" not in chosen:
        chosen["model"] = played[0]
    model = chosen.get("model", base["model"])
    if not is_small(base["model"]) or is_small(model):
        return base | chosen
    # A preset of the embedded models with another model: use that model's settings.
    real = {**base, **REAL, **chosen}
    filled, fields = fill_in(Settings.model_validate(real), chosen)
    return {**real, **{one: getattr(filled, one) for one in fields}}


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
    full = " ".join([name, *changes])
    return replace(_of_another_swarm(found, changes), name=full)


def _of_another_swarm(arm: Arm, changes: Sequence[str]) -> Arm:
    """The arm with these KEY=VALUE: settings, or `nodes`, `delay` of its swarm."""
    bounds = {"nodes": (1, MAX_NODES), "delay": (0, MAX_DELAY)}
    parts = [change.partition("=") for change in changes]
    numbers: dict[str, int] = {}
    for key, _, value in parts:
        least, most = bounds.get(key, (0, 0))
        if key in bounds and not (value.isdecimal() and least <= int(value) <= most):
            raise UsageError(f"--arm {arm.name},{key}={value}: {key} is {least} to {most:,}")
        if key in bounds:
            numbers[key] = int(value)
    rest = [change for change, (key, _, _) in zip(changes, parts, strict=True) if key not in bounds]
    made = arm.with_settings(**_settings(rest))
    if "nodes" in numbers:
        if len(set(map(repr, made.nodes))) > 1:
            raise UsageError(f"--arm {arm.name},nodes={numbers['nodes']}: its nodes are not alike")
        made = replace(made, nodes=made.nodes[:1] * numbers["nodes"])
    delay = numbers.get("delay", 0)
    return replace(
        made,
        nodes=tuple(replace(one, delay=delay or one.delay) for one in made.nodes),
    )


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
        refuse = {"model": refusal_of_model, "device": refusal_of_device}.get(key)
        if refuse is not None and (why := refuse(made)) is not None:
            raise UsageError(why)
        found[key] = list(made) if isinstance(made, tuple) else made
    return found


def _first_line(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"

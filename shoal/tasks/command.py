"""`shoal tasks`: the task families, and how each is prompted and scored."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from shoal.layout import pairs, print_pairs, print_wrapped
from shoal.prompt_shown import prompt_of, refuse_model
from shoal.tasks import on_offer
from shoal.tasks.model_play import play_by_model
from shoal.tasks.play import add_prompt_flags, play, short
from shoal_base.extras import missing_for_tasks
from shoal_base.lines import readable_json, say_json
from shoal_base.terminal import Terminal, styled
from shoal_base.visible import visible_name
from shoal_settings.exits import EXIT_OK, fail
from shoal_settings.node_settings import TASK_FILE_SUFFIX
from shoal_settings.parser import Parser, did_you_mean, whole
from shoal_tasks.errors import FamilyError
from shoal_tasks.families import PRESETS, TRAIN_SEED_MIN, coordinates
from shoal_tasks.floor import NUM_QUESTIONS
from shoal_tasks.generators import ALLOWED_GENERATORS, scorer_of
from shoal_tasks.lint.measure import measure_floor
from shoal_tasks.prompts import instruction, messages_for, plain_prompt
from shoal_tasks.spec import (
    ENVIRONMENT,
    ROWS_GENERATOR,
    FamilySpec,
    spec_to_json,
)
from shoal_tasks.task_file import load_task_files
from shoal_tasks.types import ScoreRequest, TaskItem
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.limits import MAX_SEED
from shoal_wire.types import FinishReason

DESCRIPTION = """\
List the task families of every preset, or show one, also of your own task file: a sample question
as a prompt, its answer, and the rewards of some completions. With --model it shows the exact prompt
of this model. `new` writes a task file for your data, `lint` checks that it rewards right answers,
and `try` measures a model on it. `add` and `remove` change the tasks of a running node.

  shoal tasks                                  every family, by preset
  shoal tasks show gcd_easy --model smollm2    one, as a model sees it
  shoal tasks data.toml                        that of your task file
  shoal tasks new data.jsonl                   a task file for your data
  shoal tasks lint data.toml                   does it reward right answers?
  shoal tasks try data.toml --model smollm2    rewards of a model on it
  shoal tasks --swarm                          tasks added to a running swarm
  shoal tasks add words                        one of them, for this node too
  shoal tasks frozen_lake --play               a game, played by you
  shoal tasks frozen_lake --play --model M     a game, played by a model

Exit codes: 0 ok, 1 failed, 2 usage."""

_OWN = "file"
_WRONG_ANSWER = "no idea"


class Listed(NamedTuple):
    """A family and where it is listed."""

    preset: str
    """Name of the preset, `file` for one's own, or empty for a generator's default."""
    spec: FamilySpec


def main(argv: Sequence[str]) -> int:
    """Run `shoal tasks`; return the exit code."""
    if "--swarm" in argv:
        return on_offer.main([word for word in argv if word != "--swarm"])
    # `show` may precede the family.
    shows = argv[:1] == ["show"]
    arguments = _parser().parse_args(argv[1:] if shows else argv)
    try:
        if arguments.family is None and (shows or arguments.model is not None):
            raise fail("tasks", "name a FAMILY to show; `shoal tasks` lists them")
        if arguments.family is None and arguments.play:
            raise fail("tasks", "name a FAMILY to play; `shoal tasks` lists them")
        of_model = {"--shots": arguments.shots is None, "--prompt": arguments.prompt == "auto"}
        for flag, is_left_out in of_model.items():
            if arguments.model is None and not is_left_out:
                raise fail("tasks", f"{flag} shapes the prompt of a model: give --model too")
        listed = [Listed(name, spec) for name, specs in PRESETS.items() for spec in specs]
        if arguments.family is None:
            view = {
                "families": [_row(one) for one in listed],
                "generators": sorted(ALLOWED_GENERATORS),
            }
            _show(view, _list_families, as_json=arguments.json)
            return EXIT_OK
        if (missing := missing_for_tasks()) is not None:
            raise fail("tasks", missing)
        chosen = _choose(listed, arguments.family)
        if arguments.play:
            _play(chosen.spec, arguments)
        else:
            if arguments.model is not None:
                refuse_model(arguments.model)
            sample = _sample(chosen, arguments.seed)
            if arguments.model is not None:
                question = sample["sample"]["question"]
                sample["seen"] = prompt_of(arguments, chosen.spec, question)
            _show(sample, _show_family, as_json=arguments.json)
    except (KeyboardInterrupt, BrokenPipeError):
        return EXIT_OK
    return EXIT_OK


def _play(spec: FamilySpec, arguments: argparse.Namespace) -> None:
    if arguments.model is None:
        play(Terminal(), spec, arguments.seed)
        return
    if arguments.shots is not None:
        raise fail("tasks", "--shots is for questions: a game has no worked examples")
    play_by_model(Terminal(), spec, arguments.seed, model=arguments.model, prompt=arguments.prompt)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="shoal tasks",
        description=DESCRIPTION,
    )
    parser.add_argument(
        "family",
        nargs="?",
        metavar="FAMILY",
        help="show this family, or that of a task file: FILE.toml",
    )
    parser.add_argument(
        "--seed",
        type=whole(0, MAX_SEED - 1),
        default=TRAIN_SEED_MIN,
        help="seed of the sample (default: %(default)s)",
    )
    parser.add_argument(
        "--play",
        action="store_true",
        help="play it, if it is a game; with --model the model plays",
    )
    parser.add_argument(
        "--model",
        help="show what this model sees (as --model of a node); to play also a checkpoint",
    )
    parser.add_argument(
        "--swarm", action="store_true", help="list the tasks added to a running node's swarm"
    )
    add_prompt_flags(
        parser, shots="worked examples in it (default: as the model's node has chosen, else 4)"
    )
    return parser


def _load(task_file: str) -> FamilySpec:
    try:
        (spec,) = load_task_files([task_file])
    except FamilyError as error:
        raise fail("tasks", str(error)) from None
    return spec


def _choose(listed: Sequence[Listed], name: str) -> Listed:
    if name.endswith(TASK_FILE_SUFFIX):
        return Listed(_OWN, _load(name))
    for one in listed:
        if one.spec.name == name:
            return one
    try:
        return Listed("", FamilySpec(name=name, generator=name))
    except FamilyError:
        known = [one.spec.name for one in listed] + sorted(ALLOWED_GENERATORS)
        hint = did_you_mean(name, known) or "; `shoal tasks` lists them"
        raise fail("tasks", f"no family {name!r}{hint}") from None


def _row(one: Listed) -> dict[str, Any]:
    preset, spec = one
    fields = spec_to_json(spec)
    del fields["path"], fields["reward_paths"], fields["hub_rows"]
    own = spec.generator in (ROWS_GENERATOR, ENVIRONMENT)
    return {
        "preset": preset or None,
        **fields,
        "config_digest": spec.digest.hex(),
        "scorer": spec.verifier if own else scorer_of(spec.generator),
    }


def _sample(one: Listed, seed: int) -> dict[str, Any]:
    """Return the family with a sample task and the rewards of some completions."""
    spec = one.spec
    tagged = spec.is_tagged
    task = coordinates(spec, seed)
    with SyncTaskWorker([spec]) as worker:
        item = worker.items([task])[0]
        requests = [
            ScoreRequest(task=task, text=text, finish_reason=finish)
            for text, finish in _completions(spec, item)
        ]
        results = worker.score(requests)
        floor = _measure_floor(worker, spec)
    return {
        **_row(one),
        **floor,
        "instruction": instruction(tagged=tagged, system=spec.system) or None,
        "sample": {
            "seed": seed,
            "index": task.index,
            "question": item.question,
            "messages": messages_for(item.question, tagged=tagged, system=spec.system),
            "prompt": plain_prompt(item.question, tagged=tagged, system=spec.system),
            "answer": item.answer,
            "scored": [
                {
                    "completion": request.text,
                    "finish_reason": str(request.finish_reason),
                    "reward": result.reward,
                }
                for request, result in zip(requests, results, strict=True)
            ],
        },
    }


def _measure_floor(worker: SyncTaskWorker, spec: FamilySpec) -> dict[str, Any]:
    """Return the family's floor, and whether it is large enough to be evaluated on.

    No constant message is tried on an environment, nor on a judge, which each would cost: the floor
    is empty.
    """
    if spec.is_environment or spec.is_local or spec.runs_code:
        return {"floor": {}, "evaluated": bool(worker.held_out(1, families=[spec]))}
    floor = measure_floor(worker, spec)
    return {
        "floor": {
            "answer": floor.answer,
            "echo": floor.is_echo,
            "reward": floor.reward,
            "questions": NUM_QUESTIONS,
        },
        "evaluated": bool(worker.held_out(1, families=[spec])),
    }


def _completions(spec: FamilySpec, item: TaskItem) -> list[tuple[str, FinishReason]]:
    if spec.is_environment:
        return []
    answer = item.example or ""
    tagged = f"Let me see. <answer>{answer}</answer>"
    right = tagged if spec.is_tagged else answer
    other = answer if spec.is_tagged else tagged
    return [
        (right, FinishReason.STOP),
        (right, FinishReason.LENGTH),
        (other, FinishReason.STOP),
        (right.replace(answer, _WRONG_ANSWER), FinishReason.STOP),
    ]


def _show(view: dict[str, Any], render: Any, *, as_json: bool) -> None:
    if as_json:
        say_json({"schema_version": 1, **view})
    else:
        render(Terminal(), view)


def _list_families(console: Terminal, view: dict[str, Any]) -> None:
    for preset in PRESETS:
        rows = [row for row in view["families"] if row["preset"] == preset]
        if not rows:
            continue
        console.print(f"preset {preset}", style="bold")
        for row in rows:
            _print_family(console, row)
        console.print()
    print_wrapped(console, ", ".join(view["generators"]), head="generators a family may use: ")
    console.print("`shoal tasks FAMILY` shows a sample and how it is scored")


def _print_family(console: Terminal, row: dict[str, Any]) -> None:
    head = f"  {visible_name(row['name']):<30} {row['answer_format']:<7} weight {row['weight']:g}"
    print_wrapped(console, f"{head.lstrip()}  {row['scorer']}")
    config = _config(row["config"])
    print_wrapped(console, f"{row['generator']}: {config}", head=" " * 6)


def _show_family(console: Terminal, view: dict[str, Any]) -> None:
    sample, floor = view["sample"], view["floor"]
    is_game = view["generator"] == ENVIRONMENT
    facts = {
        "family": visible_name(view["name"]),
        "preset": view["preset"] or "none: the generator's default",
        "generator": view["generator"],
        "configuration": _config(view["config"]) or "default",
        "scored by": f"{view['scorer']}; {view['verifier']} {view['verifier_version']}",
        "answer": _GAME_RULE if is_game else _ANSWER_RULES[view["answer_format"]],
        "floor": f"{floor['reward']:.2f} for {_floor_answer(floor)}" if floor else "not measured",
        "evaluated": "yes" if view["evaluated"] else "no: it has too few different questions",
    }
    table = pairs()
    for name, value in facts.items():
        table.add_row(name, value)
    print_pairs(console, table)
    for note in view["notes"]:
        console.print(visible_name(note), soft_wrap=True)
    if view["instruction"] is not None:
        _head(console, "instruction", " (before the question)")
        console.print_lines(view["instruction"])
    _head(console, "question", f" (seed {sample['seed']}, index {sample['index']})")
    console.print_lines(sample["question"].strip())
    if "seen" in view:
        _show_prompt(console, view["seen"])
    if is_game:
        console.print()
        console.print(
            f"`shoal tasks {visible_name(view['name'])} --play` plays it here; with --model a "
            "model does",
            soft_wrap=True,
        )
        return
    _head(console, "answer")
    stated = "any that the scorer accepts" if sample["answer"] is None else sample["answer"]
    console.print_lines(stated)
    _head(console, "rewards")
    for row in sample["scored"]:
        shown = short(readable_json(row["completion"]))
        ending = "" if row["finish_reason"] == "stop" else "  (cut by the token limit)"
        console.print(f"{row['reward']:5.2f}  {shown}{ending}", soft_wrap=True)


def _floor_answer(floor: dict[str, Any]) -> str:
    answer: str = floor["answer"]
    return f"{answer} (no skill)" if floor["echo"] else f"{readable_json(answer)} to everything"


def _show_prompt(console: Terminal, seen: dict[str, Any]) -> None:
    shots = seen["shots"]
    examples = f"{shots or 'no'} worked example{'' if shots == 1 else 's'}"
    model = visible_name(seen["model"])
    _head(console, "what the model sees", f" ({model}: {seen['tokens']} tokens, {examples})")
    console.print_lines(seen["text"])


def _head(console: Terminal, title: str, more: str = "") -> None:
    console.print()
    console.print(styled((title, "bold"), more))


_GAME_RULE = "messages in turn with the environment, which gives the reward"
_ANSWER_RULES = {
    "plain": "plain: the whole completion, which must have ended by itself",
    "tagged": "tagged: between the last <answer> and </answer>",
}


def _config(config: dict[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in config.items())

"""`shoal tasks try FILE --model M`: measures a model on a task file, before training.

Generates completions for some training rows and shows each with its reward. *Signal* is the share
of questions whose completions have different rewards: only those can be trained on.
"""

from __future__ import annotations

import argparse
import random
import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shoal.policy_flags import policy_of_model
from shoal.tasks.play import add_prompt_flags, short
from shoal_base.extras import missing_for_tasks
from shoal_base.lines import say_json
from shoal_base.terminal import Terminal
from shoal_base.visible import visible
from shoal_settings.called import called
from shoal_settings.exits import EXIT_FAILED, EXIT_OK, fail
from shoal_settings.loader import EMBEDDED
from shoal_settings.parser import Parser, whole
from shoal_settings.real_models import TOKENS
from shoal_tasks.errors import FamilyError
from shoal_tasks.lint.start import quick_report
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import examples_in, load_task_files
from shoal_tasks.turns import SEPARATOR
from shoal_tasks.types import ScoreRequest
from shoal_tasks.worker.sync import SyncTaskWorker

if TYPE_CHECKING:
    from shoal_policy.rollouts import OwnGroup

DESCRIPTION = """\
Let a model answer some rows of a task file, and show its answers and rewards. Nothing is trained or
shared. A question whose answers all have the same reward gives no training signal.

  shoal tasks try gsm8k.toml --model smollm2
  shoal tasks try gsm8k.toml --model smollm2 --rows 5 --max-new-tokens 200

A chat model is shown four rows with their answers before each question, as a node does where that
helps; --shots 0 shows none.

Exit codes: 0 ok, 1 failed, 2 usage."""

_AT_ONCE: Final = 4
"""Rows in a generation batch; small, so that progress is visible."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal tasks try`; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        try:
            (spec,) = load_task_files([arguments.file])
            doubt = _doubt(spec, arguments.file)
        except FamilyError as error:
            raise fail("tasks try", str(error)) from None
        with Terminal(stderr=True).status("loading the model") as status:
            view = _tried(
                arguments, spec, lambda row, of: status.update(f"answering row {row} of {of}")
            )
    except (KeyboardInterrupt, BrokenPipeError):
        return EXIT_OK
    if arguments.json:
        say_json({"schema_version": 1, **view, "doubt": doubt or None})
    else:
        _show(Terminal(), view, arguments, doubt)
    return EXIT_OK


def _doubt(spec: FamilySpec, file: str) -> str:
    """Return why it is not shown that right answers have the highest reward; empty if it is.

    Raises UsageExit if the task rewards something else: then no completion of a model helps.
    """
    if missing_for_tasks() is not None:
        return ""
    report = quick_report(spec, examples_in(Path(file)))
    if report.is_refused:
        raise fail("tasks try", f"{file} is not sound: {report.sentence}", EXIT_FAILED)
    return report.sentence


def _tried(
    arguments: argparse.Namespace, spec: FamilySpec, on_progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Return each row's question with its answers and rewards, and their summary.

    Calls `on_progress` with the number of the current row, and the number of rows.
    """
    policy = policy_of_model("tasks try", arguments.model, prompt=arguments.prompt)
    # Imported here: torch takes seconds to import, and `--help` needs none of it.
    from shoal_policy.few_shot import AUTO, build_few_shot
    from shoal_policy.generation.generator import GenerationRequest
    from shoal_policy.generation.local_generator import LocalGenerator
    from shoal_policy.model.loading import PromptFormat
    from shoal_policy.tasks import TaskSource
    from shoal_wire.types import SamplingParams

    sampling = SamplingParams(
        temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=arguments.max_new_tokens
    )
    with SyncTaskWorker([spec]) as worker:
        tasks = TaskSource(worker, [spec])
        shots = AUTO if arguments.shots is None else arguments.shots
        if policy.prompt_format is not PromptFormat.TINY:
            policy = replace(policy, few_shot=build_few_shot(policy, tasks, shots))
        rows: dict[str, dict[str, Any]] = {}
        questions = {one.text: one for one in tasks.draw(random.Random(0), 4 * arguments.rows)}
        selected = list(questions.values())[: arguments.rows]
        for number in range(0, len(selected), _AT_ONCE):
            on_progress(number + 1, len(selected))
            groups = LocalGenerator().generate(
                GenerationRequest(
                    questions=selected[number : number + _AT_ONCE],
                    policy=policy,
                    play=tasks.play,
                    policy_version=0,
                    num_completions=arguments.completions,
                    sampling=sampling,
                    seed=number,
                )
            )
            expected = tasks.expected([group.question.task for group in groups])
            for group, right, rewards in zip(
                groups, expected, tasks.verify_own(groups), strict=True
            ):
                reasons = _reasons(worker, group) if spec.runs_code else ()
                rows[group.question.text] = _row(group, right, rewards, reasons)
    shown = policy.few_shot.families.get(spec.name)
    return {
        "family": spec.name,
        "model": arguments.model,
        "shots": shown.count if shown else 0,
        **_summary(list(rows.values())),
    }


def _reasons(worker: SyncTaskWorker, group: OwnGroup) -> list[str]:
    """Return why each program of a group fails its tests; empty for one that passes."""
    return [
        result.error
        for result in worker.score(
            [
                ScoreRequest(
                    task=group.question.coordinates,
                    text=answer.text,
                    finish_reason=answer.finish_reason,
                )
                for answer in group.answers
            ]
        )
    ]


def _row(
    group: OwnGroup, expected: str | None, rewards: Sequence[float], reasons: Sequence[str]
) -> dict[str, Any]:
    return {
        "question": group.question.text,
        "expected": expected,
        "answers": [
            {
                "text": answer.text,
                "reward": reward,
                "finish_reason": str(answer.finish_reason),
                **({"reason": reason} if reason else {}),
            }
            for answer, reward, reason in zip_longest(group.answers, rewards, reasons)
        ],
    }


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows, the mean reward, and the shares of rows with signal and of cut answers."""
    if not rows:
        raise fail(
            "tasks try", "every row fills the model's context: no tokens are left for an answer"
        )
    answers = [answer for row in rows for answer in row["answers"]]
    differing = [len({answer["reward"] for answer in row["answers"]}) > 1 for row in rows]
    return {
        "rows": rows,
        "reward": statistics.fmean(answer["reward"] for answer in answers),
        "signal": statistics.fmean(differing),
        "cut": statistics.fmean(answer["finish_reason"] == "length" for answer in answers),
    }


def _show(
    console: Terminal, view: dict[str, Any], arguments: argparse.Namespace, doubt: str
) -> None:
    for row in view["rows"]:
        console.print(short(row["question"]), style="bold", soft_wrap=True)
        is_game = any(SEPARATOR in answer["text"] for answer in row["answers"])
        if row["expected"] is not None:
            console.print(f"  expected  {short(row['expected'])}", soft_wrap=True)
        for answer in sorted(row["answers"], key=lambda one: -one["reward"]):
            cut = "unfinished" if is_game else "cut by --max-new-tokens"
            ending = "" if answer["finish_reason"] == "stop" else f"  ({cut})"
            text = short(answer["text"].replace(SEPARATOR, " › "))
            console.print(f"  {answer['reward']:8.2f}  {text}{ending}", soft_wrap=True)
            if reason := answer.get("reason"):
                console.print(f"            {short(reason)}", style="dim", soft_wrap=True)
    console.print()
    console.print(
        f"mean reward {view['reward']:.2f} · {view['signal']:.0%} of {len(view['rows'])} questions "
        f"have signal (their answers earn different rewards) · {view['cut']:.0%} of answers cut"
        + (f" · {view['shots']} rows shown before each" if view["shots"] else "")
    )
    console.print(_advice(view, arguments, doubt), soft_wrap=True)


def _advice(view: dict[str, Any], arguments: argparse.Namespace, doubt: str) -> str:
    """Return what to do next, by the first problem that prevents learning.

    Rows and tokens are the cause only if the reward is known to recognise a right answer.
    """
    if doubt and (view["reward"] == 0 or view["signal"] < 0.1):
        return f"The reward may be the cause: {visible(doubt)}"
    if view["cut"] > 0.5:
        return "Most answers are cut: raise --max-new-tokens, or ask for short ones by prompt = …"
    if view["reward"] == 0:
        return "Nothing earns anything: easier rows, more --max-new-tokens, or a larger model"
    if view["signal"] < 0.1:
        return "Hardly any question has signal: rows of another difficulty, or more --completions"
    adapters = "" if arguments.model in EMBEDDED else " --lora-rank 16"
    longest = arguments.max_new_tokens
    tokens = "" if longest == TOKENS else f" --max-new-tokens {longest}"
    node = f"{called()} node --model {shlex.quote(visible(arguments.model))}{adapters}{tokens}"
    file = shlex.quote(visible(arguments.file))
    return f"There is something to learn: train with {node} --tasks {file}"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shoal tasks try", description=DESCRIPTION)
    parser.add_argument("file", metavar="FILE", help="a task file")
    parser.add_argument("--model", required=True, help="the model, as --model of a node")
    parser.add_argument(
        "--rows", type=whole(1, 1000), default=20, help="questions (default: %(default)s)"
    )
    parser.add_argument(
        "--completions",
        type=whole(2, 64),
        default=4,
        help="answers to each (default: %(default)s)",
    )
    parser.add_argument(
        "--max-new-tokens",
        type=whole(1, 65536),
        default=TOKENS,
        help="longest answer, tokens (default: %(default)s)",
    )
    add_prompt_flags(
        parser,
        shots="rows shown with their answers before each question (default: 4 for a chat model)",
    )
    return parser

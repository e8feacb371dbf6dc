"""Measures a model's right answers in each task family, and where it could learn.

    python -m benchmarks.families --model smollm2 --tasks chat --shots 4

The untrained model answers questions reserved for trying prompts (`--shots auto` uses them, too):
none is trained on, held out or judged. *Signal* is the share of questions whose answers earn
different rewards: only these have a gradient.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean

import torch

from shoal_base.lines import say_json, say_lines
from shoal_policy.choice.advantage import has_signal
from shoal_policy.few_shot import add_few_shot
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.local_generator import LocalGenerator
from shoal_policy.model.loading import ModelError, Policy, load_policy
from shoal_policy.model.prompting import prompt_ids
from shoal_policy.node.link import NodeLink
from shoal_policy.rollouts import OwnGroup, sampling_params
from shoal_policy.tasks import TaskSource
from shoal_policy.trainer_context import TrainerContext
from shoal_settings.schema import Settings
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.swarm import specs_of, starting_families
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.manifest import make_manifest
from shoal_wire.types import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyResult:
    """One family."""

    family: str
    questions: int
    right: float
    """Mean reward of all answers."""
    signal: float
    """Share of questions whose answers differ in reward."""
    ended: float
    """Share of answers that ended by themselves."""
    tokens: float
    """Tokens of a prompt, on average."""


def ask(settings: Settings, families: Sequence[str], questions: int) -> list[FamilyResult]:
    """Measure each family of the settings' tasks, or those named. Raises ModelError, TaskError."""
    manifest = make_manifest(
        "families", starting_families(settings.task_preset, settings.task_files)
    )
    specs = specs_of(manifest, settings.task_files)
    limits = WorkerLimits()
    policy = load_policy(
        settings.model, device=settings.device, dtype=settings.dtype, prompt=settings.prompt
    )
    with SyncTaskWorker(specs, limits=limits) as worker:
        tasks = TaskSource(worker, specs)
        context = TrainerContext(
            tasks=tasks,
            link=NodeLink(None),
            rules=manifest.rules,
            should_stop=lambda: False,
        )
        policy = add_few_shot(policy, settings, context, cache_dir=None)
        return [
            _ask(policy, settings, tasks, family, questions)
            for family in tasks.names
            if not families or family in families
        ]


def _ask(
    policy: Policy, settings: Settings, tasks: TaskSource, family: str, count: int
) -> FamilyResult:
    groups = LocalGenerator().generate(
        GenerationRequest(
            questions=tasks.trials(family, count),
            policy=policy,
            play=tasks.play,
            policy_version=0,
            num_completions=settings.completions,
            sampling=sampling_params(settings),
            seed=settings.seed or 1,
            on_step=lambda _done, _fraction: None,
        )
    )
    return _summed_up(policy, family, groups, tasks.verify_own(groups))


def _summed_up(
    policy: Policy, family: str, groups: Sequence[OwnGroup], rewards: Sequence[Sequence[float]]
) -> FamilyResult:
    answers = [answer for group in groups for answer in group.answers]
    return FamilyResult(
        family=family,
        questions=len(groups),
        right=mean(reward for earned in rewards for reward in earned),
        signal=mean(has_signal(earned) for earned in rewards),
        ended=mean(answer.finish_reason is FinishReason.STOP for answer in answers),
        tokens=mean(len(prompt_ids(policy, group.question)) for group in groups),
    )


def markdown(found: Sequence[FamilyResult]) -> str:
    """The table of a model's answers, by family."""
    head = ["family", "right", "questions with signal", "answers that ended", "prompt, tokens"]
    rows = [head, ["---"] * len(head)]
    rows += [
        [
            f"`{one.family}`",
            *(f"{share:.2f}" for share in (one.right, one.signal, one.ended)),
            f"{one.tokens:.0f}",
        ]
        for one in found
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. Exit code 2 for a model that cannot be used."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.families", description=__doc__)
    flags.add_argument("--model", default="smollm2")
    flags.add_argument("--tasks", default="chat", help="a preset")
    flags.add_argument("--family", action="append", default=[], help="this one; repeatable")
    flags.add_argument("--shots", default="4", help="worked examples (default: 4)")
    flags.add_argument("--prompt", default="auto", choices=("auto", "chat", "plain"))
    flags.add_argument("--questions", type=int, default=8, help="of a family (default: 8)")
    flags.add_argument("--completions", type=int, default=8, help="of a question (default: 8)")
    flags.add_argument("--max-new-tokens", type=int, default=24, help="of an answer (default: 24)")
    flags.add_argument("--dtype", default="auto")
    flags.add_argument("--json", action="store_true", help="print one JSON object")
    typed = flags.parse_args(argv)
    names = ("model", "tasks", "shots", "prompt", "completions", "max_new_tokens", "dtype")
    settings = Settings(device="cpu", **{name: getattr(typed, name) for name in names})
    torch.set_num_threads(1)
    try:
        found = ask(settings, typed.family, typed.questions)
    except ModelError as error:
        print(f"families: {error}", file=sys.stderr)
        return 2
    if typed.json:
        say_json([asdict(one) for one in found])
    else:
        say_lines(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

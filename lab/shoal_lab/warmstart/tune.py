"""`python -m shoal_lab.warmstart.tune`: what a setting of the trainer makes of an embedded model.

Rounds of SAPO in one process: no network, no sandbox, otherwise the trainer's own generation,
scoring, advantages and update. With several nodes each round's groups lie in a common pool, and a
node draws J of the others' with signal. Prints the reward on own fresh questions, as a curve.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from shoal_base.lines import say_json
from shoal_lab.warmstart.lessons import held_out_questions, training_item
from shoal_lab.warmstart.measure import accuracy
from shoal_policy.choice.advantage import group_advantages, has_signal
from shoal_policy.generation.local import generate
from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.model.prompting import encode_completion, encode_prompt
from shoal_policy.tiny import Profile, assets_path
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, make_optimizer, update
from shoal_tasks.families import EASY
from shoal_tasks.worker.generate import TaskStream
from shoal_tasks.worker.scoring import score
from shoal_wire.types import FinishReason, SamplingParams

POOL_GROUPS = 512
"""Groups that the common pool holds; older ones leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The setting that is tried."""

    model: str
    nodes: int
    local: int
    """I."""
    external: int
    """J."""
    completions: int
    """L."""
    rounds: int
    learning_rate: float
    max_new_tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class _Shared:
    """A group as text, with the rewards that everybody computes alike."""

    node: int
    question: str
    completions: list[tuple[str, FinishReason]]
    rewards: list[float]


@dataclass(slots=True)
class _Node:
    number: int
    policy: Policy
    optimizer: Any
    rng: random.Random
    torch_rng: torch.Generator
    used: set[int] = field(default_factory=set)
    """Groups drawn already, by identity."""
    rewards: list[float] = field(default_factory=list)
    """Mean reward on own fresh questions, by round."""


def run(setting: Setting, seed: int) -> tuple[list[list[float]], Policy, float]:
    """Play all rounds; return every node's rewards, the first policy, and seconds a node-round."""
    streams = {spec: TaskStream(spec) for spec in EASY}
    nodes = [_node(setting, seed, number) for number in range(setting.nodes)]
    pool: deque[_Shared] = deque(maxlen=POOL_GROUPS)
    started = time.perf_counter()
    for _ in range(setting.rounds):
        for node in nodes:
            own = _own_groups(node, setting, streams)
            pool.extend(own)
            external = _draw(node, pool, setting.external)
            node.rewards.append(statistics.mean(r for group in own for r in group.rewards))
            groups = [_train_group(node.policy, group, node.number) for group in [*own, *external]]
            update(node.policy, node.optimizer, groups, GrpoConfig())
    seconds = (time.perf_counter() - started) / max(1, setting.rounds * setting.nodes)
    return [node.rewards for node in nodes], nodes[0].policy, seconds


def _node(setting: Setting, seed: int, number: int) -> _Node:
    policy = load_policy(setting.model, device="cpu")
    return _Node(
        number=number,
        policy=policy,
        optimizer=make_optimizer(policy, lr=setting.learning_rate),
        rng=random.Random(f"{seed}/{number}"),
        torch_rng=torch.Generator().manual_seed(seed * 1000 + number),
    )


def _own_groups(node: _Node, setting: Setting, streams: dict[Any, TaskStream]) -> list[_Shared]:
    specs = [node.rng.choice(EASY) for _ in range(setting.local)]
    items = [training_item(streams[spec], node.rng) for spec in specs]
    drawn = generate(
        node.policy,
        [encode_prompt(node.policy, item.question) for item in items],
        num_completions=setting.completions,
        params=SamplingParams(
            temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=setting.max_new_tokens
        ),
        generator=node.torch_rng,
    )
    return [
        _Shared(
            node.number,
            item.question,
            [(sample.text, sample.finish_reason) for sample in group],
            [score(spec, item, sample.text, sample.finish_reason) for sample in group],
        )
        for spec, item, group in zip(specs, items, drawn, strict=True)
    ]


def _draw(node: _Node, pool: Sequence[_Shared], wanted: int) -> list[_Shared]:
    """Up to `wanted` of the others' groups with signal that this node has not used."""
    fresh = [
        group
        for group in pool
        if group.node != node.number and id(group) not in node.used and has_signal(group.rewards)
    ]
    chosen = node.rng.sample(fresh, min(wanted, len(fresh)))
    node.used.update(map(id, chosen))
    return chosen


def _train_group(policy: Policy, group: _Shared, reader: int) -> TrainGroup:
    return TrainGroup(
        prompt_ids=encode_prompt(policy, group.question),
        completions=[encode_completion(policy, *made) for made in group.completions],
        advantages=group_advantages(group.rewards),
        external=group.node != reader,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one JSON object a seed: the curve, and accuracy on held-out questions at the end."""
    parser = argparse.ArgumentParser(prog="python -m shoal_lab.warmstart.tune", description=__doc__)
    parser.add_argument("--model", default=str(assets_path(Profile.DENSE)), help="folder or name")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--local", type=int, default=8)
    parser.add_argument("--external", type=int, default=0)
    parser.add_argument("--completions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--learning-rate", type=float, default=4e-4)
    parser.add_argument("--max-new-tokens", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--window", type=int, default=10, help="rounds a point of the curve")
    options = vars(parser.parse_args(arguments))
    seeds, window = options.pop("seeds"), options.pop("window")
    setting = Setting(**options)
    torch.set_num_threads(1)
    questions = held_out_questions(50)
    for seed in range(1, seeds + 1):
        rewards, policy, seconds = run(setting, seed)
        by_round = [statistics.mean(row) for row in zip(*rewards, strict=True)]
        curve = [
            round(statistics.mean(by_round[start : start + window]), 3)
            for start in range(0, len(by_round), window)
        ]
        held_out = {name: round(x, 3) for name, x in accuracy(policy, questions).items()}
        line = {"seed": seed, "curve": curve, "held_out": held_out, "seconds": round(seconds, 3)}
        say_json(line)


if __name__ == "__main__":
    main()

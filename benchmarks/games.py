"""Games of several turns: a KV cache kept between turns, against recomputing each turn.

Both ways play the same games, compared token by token, in float32 on one thread, and take turns
within each repeat. Counted are the tokens that go through the first layer, including padding and
waiting rows, and CPU seconds. *Least* counts every token of a game once, and a question's prompt
once for all its games. The environment is a function in this process, so its time is negligible.

Two random Qwen2 of the generation benchmark, which end a message after some ten tokens: hidden size
256, and Qwen2.5-0.5B's dimensions with 2 layers and a vocabulary of 4,096.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from transformers.utils import logging as transformers_logging

from benchmarks.generation_cases import CASES, make_policy
from benchmarks.harness import Options, Report, at_least, main, note
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.local import generate
from shoal_policy.generation.local_generator import LocalGenerator
from shoal_policy.generation.questions import build_prompt
from shoal_policy.model.loading import Policy
from shoal_policy.rollouts import Answer, Question
from shoal_tasks.turns import split_messages
from shoal_tasks.types import Play, PlayRequest
from shoal_wire.types import Digest, SamplingParams, Task

REPEATS, QUICK_REPEATS = 2, 1
GAMES, COMPLETIONS, MAX_TURNS, MAX_NEW = 4, 4, 8, 48
_END_ODDS = 1 / 10
_DONE_ODDS = 1 / 12
"""Chance that the environment ends a game after a message."""
_HEARD_WORDS = (2, 12)
_LEAST_ALIKE = 0.9
"""A sample at the boundary of two tokens can fall on either side by rounding; its game then
differs."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One round of games."""

    answers: Sequence[Answer]
    tokens: int
    cpu_seconds: float


def measure(options: Options) -> Report:
    """Time each model. Quick: one repeat, shorter games."""
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    results: dict[str, Any] = {}
    goals = []
    for case in (CASES[1], replace(CASES[2], name="wide", vocabulary=4096, layers=2)):
        note(f"  {case.name}")
        found = results[case.name] = _time(_ending(make_policy(case)), options)
        goals.append(
            at_least(
                f"{case.name}: tokens recomputed over cached", found["tokens_computed_ratio"], 2
            )
        )
        goals.append(
            at_least(f"{case.name}: CPU seconds, recomputed over cached", found["cpu_ratio"], 1.0)
        )
    return Report(results=results, goals=goals)


def _ending(policy: Policy) -> Policy:
    """The same with more end tokens: its messages are seldom truncated, which would end their
    games."""
    size = int(policy.model.config.vocab_size)
    return replace(policy, eos_ids=frozenset(range(size - int(size * _END_ODDS), size)))


def _time(policy: Policy, options: Options) -> dict[str, Any]:
    turns = 4 if options.quick else MAX_TURNS
    ways = {"held": LocalGenerator(), "recomputed": LocalGenerator(partial(generate))}
    timings: dict[str, list[Timing]] = {name: [] for name in ways}
    game_questions = [_question(number, turns) for number in range(GAMES)]
    for repeat in range(QUICK_REPEATS if options.quick else REPEATS):
        for name, way in ways.items():
            timings[name].append(_timed(policy, way, game_questions, repeat))
        if _alike(timings) < _LEAST_ALIKE:
            raise RuntimeError("the two ways play other games")
    count = GAMES * COMPLETIONS
    answers = [one for timing in timings["held"] for one in timing.answers]
    prompts = sum(len(build_prompt(policy, one) or ()) for one in game_questions)
    return {
        "games": count,
        "alike_share": _alike(timings),
        "turns_a_game": sum(len(split_messages(one.text)) for one in answers) / len(answers),
        "tokens_a_game": {
            "least": sum(len(one.ids) - 1 for one in answers) / len(answers) + prompts / count,
            **{
                name: median([one.tokens for one in found]) / count
                for name, found in timings.items()
            },
        },
        "cpu_seconds_a_game": {
            name: median([one.cpu_seconds for one in found]) / count
            for name, found in timings.items()
        },
        "tokens_computed_ratio": _ratio(timings, "tokens"),
        "cpu_ratio": _ratio(timings, "cpu_seconds"),
    }


def _alike(timings: dict[str, list[Timing]]) -> float:
    """Share of the games that are the same to the last token."""
    pairs = [
        (held.ids, recomputed.ids)
        for one, other in zip(timings["held"], timings["recomputed"], strict=True)
        for held, recomputed in zip(one.answers, other.answers, strict=True)
    ]
    return sum(held == recomputed for held, recomputed in pairs) / len(pairs)


def _ratio(timings: dict[str, list[Timing]], name: str) -> float:
    """Median of the repeats' ratios, recomputed over cached."""
    pairs = zip(timings["recomputed"], timings["held"], strict=True)
    return float(
        median([getattr(recomputed, name) / getattr(held, name) for recomputed, held in pairs])
    )


def _timed(
    policy: Policy, way: LocalGenerator, game_questions: Sequence[Question], seed: int
) -> Timing:
    batch = GenerationRequest(
        questions=game_questions,
        policy=policy,
        policy_version=0,
        num_completions=COMPLETIONS,
        sampling=SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=MAX_NEW),
        seed=seed,
        play=_world,
    )
    with _tokens_of(policy) as tokens:
        cpu = time.process_time()
        groups = way.generate(batch)
        seconds = time.process_time() - cpu
    answers = [answer for group in groups for answer in group.answers]
    return Timing(answers, sum(tokens), seconds)


@contextmanager
def _tokens_of(policy: Policy) -> Iterator[list[int]]:
    seen: list[int] = []

    def see(_module: Any, _inputs: Any, out: torch.Tensor) -> None:
        seen.append(out.numel() // out.shape[-1])

    handle = policy.model.model.layers[0].mlp.down_proj.register_forward_hook(see)
    try:
        yield seen
    finally:
        handle.remove()


def _question(number: int, turns: int) -> Question:
    words = random.Random(number).choices("abcdefghij", k=20 + 20 * number)
    task = Task(
        family="game",
        config_digest=Digest(bytes(16)),
        seed=0,
        index=number,
        verifier="environment",
        verifier_version="1",
        question_digest=Digest(bytes(16)),
    )
    return Question(task=task, text=" ".join(words), tagged=False, max_turns=turns)


def _world(requests: Sequence[PlayRequest]) -> list[Play]:
    plays = []
    for request in requests:
        chances = [
            random.Random("/".join((str(request.task), *request.messages[: place + 1])))
            for place in range(len(request.messages))
        ]
        observed = tuple(
            " ".join(chance.choices("abcdefghij", k=chance.randint(*_HEARD_WORDS)))
            for chance in chances
        )
        done = chances[-1].random() < _DONE_ODDS
        plays.append(Play(observations=observed, done=done, reward=0.0))
    return plays


if __name__ == "__main__":
    sys.exit(main("games", __doc__, measure))

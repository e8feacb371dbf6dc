"""Games played with keys and values held over turns: the same as from each turn's beginning."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_policy.generation import game_batch, multi_turn_decoder
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.local import generate
from shoal_policy.generation.local_generator import LocalGenerator
from shoal_policy.generation.multi_turn_decoder import MultiTurnDecoder, can_keep_cache
from shoal_policy.generation.questions import build_prompt
from shoal_policy.model.loading import Policy
from shoal_policy.rollouts import Answer, Question
from shoal_tasks.turns import split_messages
from shoal_tasks.types import Play, PlayRequest
from shoal_wire.types import FinishReason
from tests.policy import tiny_models
from tests.policy.generation import vllm_cases
from tests.policy.generation.vllm_cases import SAMPLING
from tests.support import factories as make


def talkative(architecture: str = "llama", positions: int = 300, ends: int = 12) -> Policy:
    """A random policy with this many end tokens of 57: it ends its messages often."""
    policy = tiny_models.policy(architecture, positions=positions)
    return replace(policy, eos_ids=frozenset({2, *range(5, 4 + ends)}))


def world(requests: Sequence[PlayRequest]) -> list[Play]:
    """An environment whose replies and end depend on the messages."""
    plays = []
    for request in requests:
        message = [
            f"{request.task.index}/{'/'.join(request.messages[: n + 1])}"
            for n, _ in enumerate(request.messages)
        ]
        chances = [random.Random(one) for one in message]
        plays.append(
            Play(
                observations=tuple("ab "[c.randrange(3)] * c.randrange(12) for c in chances),
                done=chances[-1].random() < 0.2,
                reward=0.0,
            )
        )
    return plays


def questions(games: int, once: int = 0, max_turns: int = 5) -> list[Question]:
    made = [
        Question(
            task=make.task(number),
            text="go " * (number % 4 + 1),
            tagged=False,
            max_turns=max_turns if number < games else 0,
        )
        for number in range(games + once)
    ]
    return random.Random(games).sample(made, len(made))


request_of = partial(vllm_cases.request_of, num_completions=6, play=world)
"""A round of such questions, as a generator is asked for it."""


def held(this: GenerationRequest) -> list[Answer]:
    groups = LocalGenerator().generate(this)
    return [answer for group in groups for answer in group.answers]


def by_turns(this: GenerationRequest) -> list[Answer]:
    """Generate as a generator outside this process does: each turn from the beginning."""
    groups = LocalGenerator(partial(generate)).generate(this)
    return [answer for group in groups for answer in group.answers]


def assert_same(found: Sequence[Answer], expected: Sequence[Answer]) -> None:
    bare = [replace(one, logprobs=()) for one in found]
    assert bare == [replace(one, logprobs=()) for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=3e-5)


@contextmanager
def tokens_computed(policy: Policy) -> Iterator[list[int]]:
    """The tokens of each pass, by the first layer: every way of computing goes through its end."""
    seen: list[int] = []
    last = policy.model.model.layers[0].mlp.down_proj

    def note(_module: Any, _inputs: Any, out: torch.Tensor) -> None:
        seen.append(out.numel() // out.shape[-1])

    handle = last.register_forward_hook(note)
    try:
        yield seen
    finally:
        handle.remove()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "llama by its modules", "adapters"])
def test_the_same_games_as_from_the_beginning_of_each_turn(
    kind: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = talkative(kind.split()[0] if kind != "adapters" else "llama")
    if kind == "adapters":
        policy = tiny_models.with_adapter(policy)
    if "modules" in kind:
        monkeypatch.setattr(multi_turn_decoder, "is_small_llama", lambda _policy: False)
    sampling = replace(SAMPLING, temperature=temperature, top_k=30)
    this = request_of(policy, questions(4, once=2), sampling=sampling, num_completions=8)
    assert can_keep_cache(policy)
    found = held(this)
    assert_same(found, by_turns(this))
    if temperature:
        several = [
            one for one in found if one.completion_positions and len(split_messages(one.text)) > 2
        ]
        assert len(several) > 5


@pytest.mark.slow
@settings(max_examples=60)
@given(
    games=st.integers(1, 6),
    once=st.integers(0, 2),
    completions=st.integers(1, 7),
    size=st.integers(1, 6),
    turns=st.integers(1, 6),
    ends=st.sampled_from([1, 4, 12, 24]),
    positions=st.sampled_from([20, 40, 300]),
    at_once=st.sampled_from([1, 3, 512]),
    seed=st.integers(0, 99),
)
def test_generated_rounds(
    games: int,
    once: int,
    completions: int,
    size: int,
    turns: int,
    ends: int,
    positions: int,
    at_once: int,
    seed: int,
) -> None:
    policy = talkative(positions=positions, ends=ends)
    this = request_of(
        policy,
        questions(games, once, turns),
        num_completions=completions,
        sampling=replace(SAMPLING, max_new_tokens=size),
        seed=seed,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(game_batch, "MAX_ROWS", at_once)
        found = held(this)
    assert_same(found, by_turns(this))
    for answer in found:
        assert (
            answer.completion_positions is None
            or answer.completion_positions[-1] == len(answer.ids) - 1
        )


def test_a_turn_costs_its_own_tokens_alone() -> None:
    policy = talkative(ends=16)
    this = request_of(policy, questions(4, max_turns=8), num_completions=16)
    prompts = sum(len(build_prompt(policy, one) or []) for one in this.questions)
    with tokens_computed(policy) as before:
        by_turns(this)
    with tokens_computed(policy) as now:
        answers = held(this)
    # A row's last token is drawn and never read.
    least = prompts + sum(len(one.ids) - 1 for one in answers)
    # Rows wait in the batch for an answer, or to be dropped, and compute tokens for nothing.
    assert least <= sum(now) < 1.5 * least
    assert sum(before) > 2.5 * least


def test_the_longest_message_of_a_turn_holds_up_no_other_game() -> None:
    """One row says all it may in each of its turns; the others' games are over long before."""
    policy = talkative(ends=16)
    requested = questions(8, max_turns=6)
    this = request_of(
        policy, requested, num_completions=8, sampling=replace(SAMPLING, max_new_tokens=40)
    )
    calls: list[set[int]] = []

    def noted(requests: Sequence[PlayRequest]) -> list[Play]:
        calls.append({len(request.messages) for request in requests})
        return world(requests)

    found = held(replace(this, play=noted))
    assert_same(found, by_turns(this))
    assert any(len(turns) > 1 for turns in calls), "games at different turns are answered together"


def test_games_go_on_with_half_as_many_where_memory_runs_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = talkative()
    this = request_of(policy, questions(4), num_completions=8)
    expected = held(this)
    step = MultiTurnDecoder.step
    sizes: list[int] = []

    def scarce(rows: MultiTurnDecoder, ids: torch.Tensor, *how: Any) -> torch.Tensor:
        sizes.append(len(ids))
        if len(ids) > 12 and len(sizes) > 6:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return step(rows, ids, *how)

    monkeypatch.setattr(MultiTurnDecoder, "step", scarce)
    assert_same(held(request_of(talkative(), this.questions, num_completions=8)), expected)
    assert max(sizes) > 12 and sizes[-1] <= 12


def test_a_model_with_a_window_plays_from_the_beginning_of_each_turn() -> None:
    policy = talkative("qwen2")
    config = policy.model.config
    config.layer_types = ["sliding_attention"] * 2
    config.sliding_window = 8
    policy = replace(policy, model=type(policy.model)(config).eval())
    assert not can_keep_cache(policy)
    this = request_of(policy, questions(2))
    assert_same(held(this), by_turns(this))


def test_progress_never_goes_back() -> None:
    reported: list[tuple[int, float]] = []
    this = request_of(
        talkative(), questions(3, once=2), on_step=lambda done, part: reported.append((done, part))
    )
    answers = held(this)
    assert reported == sorted(reported) and reported[-1] == (len(answers), 1.0)
    assert any(
        one.finish_reason is FinishReason.STOP for one in answers if one.completion_positions
    )

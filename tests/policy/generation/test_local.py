"""The sampling loop against transformers' own generate and against teacher-forced forwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch

from shoal_policy.generation import decoding
from shoal_policy.generation.local import generate, sample_tokens
from shoal_policy.model.examples import FamilyExamples, FewShotExamples
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.rollouts import Answer
from shoal_wire.types import FinishReason, SamplingParams
from tests.policy import tiny_models

Prompts = Sequence[Sequence[int]]
Samples = list[list[Answer]]
PROMPTS = [[1, 20, 21, 22, 4], [1, 30, 4], [1, 9, 9, 14, 33, 40, 12, 4], [1, 31, 4]]
"""Of different lengths, so that most of them are padded."""


def params(**changes: Any) -> SamplingParams:
    return tiny_models.sampling(**{"max_new_tokens": 16, **changes})


def draw(policy: Policy, prompts: Prompts = PROMPTS, **options: Any) -> Samples:
    return tiny_models.draw(policy, prompts, **{"num": 6, "params": params(), **options})


def with_likely_end(policy: Policy) -> Policy:
    """Make the end token likely, so that rows end at different steps."""
    row = policy.model.get_output_embeddings().weight
    with torch.no_grad():
        row[2] = row.mean(0) * 3 + row[4:].std() * 0.3
    return policy


@pytest.fixture(params=[*tiny_models.ARCHITECTURES, "qwen2, any size", "llama, any size"])
def policy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Policy:
    architecture, _, any_size = request.param.partition(",")
    if any_size:
        monkeypatch.setattr(decoding, "SMALL_PARAMETERS", 0)
    return tiny_models.policy(architecture, seed=1)


@pytest.mark.parametrize(
    ("architecture", "fast"), [("qwen2", True), ("llama", True), ("gpt2", False)]
)
def test_small_llamas_take_the_fast_path(architecture: str, fast: bool) -> None:
    decoder = decoding.make_decoder(tiny_models.policy(architecture), PROMPTS, 2, 4)
    assert isinstance(decoder, decoding.SmallDecoder) == fast


@pytest.mark.parametrize("prompts", [PROMPTS, PROMPTS[1::2]], ids=["padded", "equal lengths"])
def test_greedy_is_what_transformers_generates(policy: Policy, prompts: list[list[int]]) -> None:
    ours = draw(policy, prompts, params=params(temperature=0.0), num=2)
    for prompt, samples in zip(prompts, ours, strict=True):
        theirs = policy.model.generate(
            input_ids=torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=16,
        )[0, len(prompt) :].tolist()
        assert [list(sample.ids) for sample in samples] == [theirs, theirs]


@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}, {"top_k": 9, "top_p": 0.6}],
    ids=str,
)
def test_claimed_logprobs_are_those_of_the_distribution_drawn_from(
    policy: Policy, settings: dict[str, float]
) -> None:
    chosen = params(**settings)
    for prompt, samples in zip(PROMPTS, draw(policy, params=chosen), strict=True):
        for sample in samples:
            with torch.no_grad():
                logits = policy.model(input_ids=torch.tensor([[*prompt, *sample.ids]])).logits[0]
            for place, (token, claimed) in enumerate(zip(sample.ids, sample.logprobs, strict=True)):
                probs = truncated(logits[len(prompt) - 1 + place], chosen)
                assert claimed == pytest.approx(float(probs[token].log()), abs=1e-4)


def truncated(logits: torch.Tensor, chosen: SamplingParams) -> torch.Tensor:
    """The sampling distribution, token by token: a plain reading of top-k, then top-p."""
    probs = torch.softmax(logits.double() / chosen.temperature, 0)
    order = sorted(range(len(probs)), key=lambda token: -float(probs[token]))
    keep = order[: chosen.top_k or len(order)]
    mass = float(probs[keep].sum())
    nucleus, before = [], 0.0
    for token in keep:
        if before < chosen.top_p:
            nucleus.append(token)
        before += float(probs[token]) / mass
    kept = torch.zeros_like(probs)
    kept[nucleus] = probs[nucleus]
    return kept / kept.sum()


def test_same_seed_same_samples_other_seed_others(policy: Policy) -> None:
    """And the generator moves on between calls, and between the answers to a prompt."""
    assert draw(policy) == draw(policy)
    assert draw(policy) != draw(policy, seed=4)
    generator = torch.Generator().manual_seed(0)
    how: dict[str, Any] = {"num_completions": 3, "params": params(), "generator": generator}
    first, second = (generate(policy, PROMPTS, **how) for _ in range(2))
    assert first != second
    assert all(len({tuple(one.ids) for one in samples}) == 3 for samples in first)


def test_samples_do_not_depend_on_batching_or_on_who_ended(policy: Policy) -> None:
    together = draw(with_likely_end(policy))
    lengths = {len(sample.ids) for samples in together for sample in samples}
    assert len(lengths) > 3, "rows must end at different steps for this test to mean anything"
    tiny_models.assert_same_answers(together, draw(policy, max_rows=6), 1e-4)


def test_end_token_closes_a_completion_and_is_kept_in_ids_only() -> None:
    policy = with_likely_end(tiny_models.policy(seed=1))
    samples = list(chain(*draw(policy, num=24)))
    reasons = {sample.finish_reason for sample in samples}
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}
    for sample in samples:
        assert policy.eos_id not in sample.ids[:-1]
        assert "<eos>" not in sample.text
        assert len(sample.logprobs) == len(sample.ids) > 0
        if sample.finish_reason is FinishReason.STOP:
            assert sample.ids[-1] == policy.eos_id
        else:
            assert len(sample.ids) == 16
            assert sample.ids[-1] != policy.eos_id


@pytest.mark.parametrize("examples", [(), tuple(range(5, 25))], ids=["plain", "behind examples"])
def test_a_row_that_ended_is_not_computed_past_the_last_position(examples: tuple[int, ...]) -> None:
    """Few of many rows have ended, so that they stay for a while: GPT-2 has no row for them."""
    policy = tiny_models.policy("gpt2", positions=len(examples) + 12)
    if examples:
        shown = FamilyExamples(count=1, examples=(), prefix=examples)
        policy = replace(policy, few_shot=FewShotExamples({"any": shown}))
    prompts = [[*examples, *prompt] for prompt in [[1, 30, 4]] * 8 + [PROMPTS[2]]]
    samples = draw(policy, prompts, params=params(max_new_tokens=8))
    assert max(len(sample.ids) for sample in samples[0]) == 8
    assert max(len(sample.ids) for sample in samples[8]) == 12 - 8


def test_a_prompt_that_fills_the_model_is_refused() -> None:
    policy = tiny_models.policy("gpt2", positions=8)
    with pytest.raises(ValueError, match="8 tokens"):
        draw(policy, [PROMPTS[0], PROMPTS[2]])
    with pytest.raises(ValueError, match="0 tokens"):
        draw(policy, [[]])


def test_a_model_whose_cache_has_a_name_that_we_do_not_know_is_refused() -> None:
    policy = tiny_models.policy("gpt2")
    names = policy.forward_names - {"cache", "past_key_values"}
    with pytest.raises(ModelError, match="no key-value cache"):
        draw(replace(policy, forward_names=names))


def test_a_broken_model_is_an_error_not_garbage() -> None:
    policy = tiny_models.policy()
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[7] = torch.nan
    with pytest.raises(ModelError, match="not finite"):
        draw(policy)


def test_tokens_are_drawn_in_proportion() -> None:
    logits = torch.tensor([0.1, 0.5, 0.0, 0.25, 0.15]).log()
    uniforms = torch.arange(2000) / 2000
    ids, logprobs = sample_tokens(logits.expand(2000, 5), uniforms, params())
    assert torch.bincount(ids, minlength=5).tolist() == pytest.approx(
        [200, 1000, 0, 500, 300], abs=1
    )
    assert torch.allclose(logprobs, logits[ids])


def test_the_largest_uniform_never_picks_an_impossible_token() -> None:
    logits = torch.full((64, 300), -torch.inf)
    logits[:, :200] = torch.randn(64, 200, generator=torch.Generator().manual_seed(0))
    # Rounding may lift the product of the largest uniform and the total up to the total.
    ids, logprobs = sample_tokens(logits, torch.ones(64), params())
    assert int(ids.max()) < 200
    assert bool(torch.isfinite(logprobs).all())

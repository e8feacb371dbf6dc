"""Generation's three candidates on one model, the same prompts and the same sampling settings.

`ours` is `shoal_policy.generation.local.generate`. `plain` is the model's own ``generate``: prompts
padded left, L sequences returned for each. `continuous` is transformers' continuous batching. Each
makes P prompts times L completions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    AutoTokenizer,
    ContinuousBatchingConfig,
    GenerationConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from shoal_policy.generation.local import generate
from shoal_policy.model.loading import Policy, load_policy, wrap_policy
from shoal_policy.model.prompting import encode_prompt
from shoal_policy.tiny import assets_path
from shoal_tasks.families import EASY
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import SamplingParams

COMPLETIONS = 8
END_ODDS = 1 / 24
"""Probability that a random model's token is an end token: rows end one by one."""

Run = Callable[[int, float], list[list[int]]]
"""Seed and temperature → completions, row by row; an end token may stand at their end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model and its work. Prompt lengths are drawn evenly from the bounds, in tokens."""

    name: str
    prompts: int
    max_new: int
    goal: float
    """CPU seconds a token of plain ``generate``, over ours."""
    hidden: int = 0
    """0: the embedded model with questions of its own tasks."""
    layers: int = 0
    heads: int = 0
    key_heads: int = 0
    feed_forward: int = 0
    vocabulary: int = 0
    prompt: tuple[int, int] = (48, 160)


CASES = (
    Case(name="tiny", prompts=8, max_new=12, goal=1.5),
    Case(
        name="small",
        prompts=8,
        max_new=48,
        goal=1.0,
        hidden=256,
        layers=4,
        heads=4,
        key_heads=2,
        feed_forward=768,
        vocabulary=4096,
    ),
    Case(
        name="hub_size",
        prompts=4,
        max_new=32,
        goal=1.0,
        hidden=896,
        layers=4,
        heads=14,
        key_heads=2,
        feed_forward=4864,
        vocabulary=151_936,
    ),
)
"""``hub_size`` is Qwen2.5-0.5B with 4 of its 24 layers: its head counts for more than in the full
model."""


def make_policy(case: Case) -> Policy:
    """The embedded model, or a random Qwen2 in float32 with many end tokens."""
    if not case.hidden:
        return load_policy("tiny", device="cpu")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=case.vocabulary,
        hidden_size=case.hidden,
        num_hidden_layers=case.layers,
        num_attention_heads=case.heads,
        num_key_value_heads=case.key_heads,
        intermediate_size=case.feed_forward,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config)
    ends = int(case.vocabulary * END_ODDS)
    model.generation_config.eos_token_id = list(range(case.vocabulary - ends, case.vocabulary))
    model.generation_config.pad_token_id = 0
    tokenizer = AutoTokenizer.from_pretrained(assets_path())
    return wrap_policy(model, tokenizer, name=case.name, device="cpu")


def make_prompts(case: Case, policy: Policy) -> list[list[int]]:
    """The round's prompts, always the same."""
    rng = random.Random(0)
    if not case.hidden:
        with SyncTaskWorker(EASY) as worker:
            drawn = worker.draw(rng, case.prompts)
        return [encode_prompt(policy, question) for _, question in drawn]
    # Below the tokenizer's last token, because it must decode the model's output.
    return [
        [rng.randrange(5, 100) for _ in range(rng.randint(*case.prompt))]
        for _ in range(case.prompts)
    ]


def ours(policy: Policy, prompts: Sequence[Sequence[int]], case: Case) -> Run:
    """The trainer's own way."""

    def run(seed: int, temperature: float) -> list[list[int]]:
        samples = generate(
            policy,
            prompts,
            num_completions=COMPLETIONS,
            params=SamplingParams(
                temperature=temperature, top_p=1.0, top_k=0, max_new_tokens=case.max_new
            ),
            generator=torch.Generator().manual_seed(seed),
        )
        return [list(sample.ids) for row in samples for sample in row]

    return run


def plain(policy: Policy, prompts: Sequence[Sequence[int]], case: Case) -> Run:
    """``model.generate`` as its documentation shows it."""
    width = max(map(len, prompts))
    ids = torch.tensor([[policy.pad_id] * (width - len(p)) + list(p) for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    ends = policy.eos_ids

    def run(seed: int, temperature: float) -> list[list[int]]:
        torch.manual_seed(seed)
        out = policy.model.generate(
            input_ids=ids,
            attention_mask=mask,
            **_settings(policy, case, temperature),
            num_return_sequences=COMPLETIONS if temperature else 1,
        )
        return [_cut(row[width:].tolist(), ends) for row in out]

    return run


def continuous(policy: Policy, prompts: Sequence[Sequence[int]], case: Case) -> Run:
    """``model.generate_batch``; blocks and batch are sized for this work and no more."""
    page = 32
    rows = len(prompts) * COMPLETIONS
    pages = -(-(max(map(len, prompts)) + case.max_new) // page)
    attention = policy.model.config._attn_implementation

    def run(seed: int, temperature: float) -> list[list[int]]:
        copies = COMPLETIONS if temperature else 1
        outputs = policy.model.generate_batch(
            [list(prompt) for prompt in prompts for _ in range(copies)],
            generation_config=GenerationConfig(
                **_settings(policy, case, temperature), eos_token_id=sorted(policy.eos_ids)
            ),
            continuous_batching_config=ContinuousBatchingConfig(
                page_size=page,
                num_blocks=rows * pages,
                max_batch_tokens=rows * 4,
                use_cuda_graph=False,
                seed=seed,
            ),
            warmup=False,
        )
        # It switches the model to paged attention and does not switch back.
        policy.model.set_attn_implementation(attention)
        return [_cut(list(output.generated_tokens), policy.eos_ids) for output in outputs.values()]

    return run


CANDIDATES: dict[str, Callable[[Policy, Sequence[Sequence[int]], Case], Run]] = {
    "ours": ours,
    "plain": plain,
    "continuous": continuous,
}


def _settings(policy: Policy, case: Case, temperature: float) -> dict[str, Any]:
    sampling = {"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
    return {
        "do_sample": bool(temperature),
        "max_new_tokens": case.max_new,
        "pad_token_id": policy.pad_id,
        **sampling,
    }


def _cut(ids: list[int], ends: frozenset[int]) -> list[int]:
    """A row up to its end token: padding follows it."""
    for place, token in enumerate(ids):
        if token in ends:
            return ids[: place + 1]
    return ids

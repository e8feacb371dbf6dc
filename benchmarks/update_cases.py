"""The update step's candidates on one model and one batch of made-up rollouts.

`Ours` is `update.grpo.update`. `Trl` is the installed GRPOTrainer's own loss over its own
padded tensors, in its own micro-batches. `Plain` is the step as a tutorial would write it: logits
of all completion positions, log-softmax, gather. Each has a copy of the model and one optimiser.
"""

from __future__ import annotations

import copy
import importlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from shoal_policy.model.loading import Policy, wrap_policy
from shoal_policy.tiny import assets_path
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, make_optimizer, update

GROUPS, COMPLETIONS = 8, 8
MICRO_BATCH = 8
"""Rows in one forward pass of TRL's and of the plain step; ours packs by its token budget."""
LONGEST = 128
LARGE_VOCABULARY = 151_936
LEARNING_RATE = 1e-6
EPSILON = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of batch. Lengths are drawn evenly from the two bounds, in tokens."""

    completion: tuple[int, int] = (16, LONGEST)
    prompt: tuple[int, int] = (12, 20)
    vocabulary: int = 512
    silent_groups: int = 0
    """Groups, of 8, whose completions all have advantage zero."""
    groups: int = GROUPS
    tied: bool = True
    """The output matrix is the embedding's."""


_PROMPTS_OF_64 = Case(prompt=(64, 64), tied=False)
CASES = {
    "equal": Case(completion=(LONGEST, LONGEST)),
    "equal_64": replace(_PROMPTS_OF_64, completion=(LONGEST, LONGEST)),
    "mixed": Case(),
    "mixed_64": _PROMPTS_OF_64,
    "mixed_long_prompts": Case(prompt=(160, 224)),
    "half_without_signal": Case(silent_groups=GROUPS // 2),
    "half_without_signal_64": replace(_PROMPTS_OF_64, silent_groups=GROUPS // 2),
    "large_vocabulary": Case(vocabulary=LARGE_VOCABULARY, groups=2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Figures of a step that must equal the other candidates'."""

    loss: float
    grad_norm: float


class Candidate(Protocol):
    """A model of its own and a way to take one step on the case's batch."""

    def step(self) -> Outcome: ...


def make_groups(case: Case, seed: int = 0) -> list[TrainGroup]:
    """Random tokens; advantages not centred, so that the loss is not zero by construction."""
    rng = random.Random(seed)

    def tokens(bounds: tuple[int, int]) -> list[int]:
        return [rng.randrange(5, case.vocabulary) for _ in range(rng.randint(*bounds))]

    return [
        TrainGroup(
            prompt_ids=tokens(case.prompt),
            completions=[tokens(case.completion) for _ in range(COMPLETIONS)],
            advantages=[
                0.0 if number < case.silent_groups else rng.gauss(0.3, 1)
                for _ in range(COMPLETIONS)
            ],
            external=False,
        )
        for number in range(case.groups)
    ]


def step_gflop(case: Case) -> float:
    """Return the GFLOP of a step without any waste: each prompt once, no row without advantage.

    Forward and backward of all matrix products; attention is a few per cent and not counted.
    """
    config = small_qwen2(8).config
    hidden, layers = config.hidden_size, config.num_hidden_layers
    key_values = 2 * config.num_key_value_heads * (hidden // config.num_attention_heads)
    layer = hidden * (2 * hidden + key_values + 3 * config.intermediate_size)
    body = head = 0
    for group in make_groups(case):
        trained = [
            len(ids) for ids, one in zip(group.completions, group.advantages, strict=True) if one
        ]
        body += (len(group.prompt_ids) + sum(trained)) * bool(trained)
        head += sum(trained)
    return 6e-9 * (layers * layer * body + hidden * case.vocabulary * head)


def small_qwen2(vocabulary: int, *, tied: bool = True, **named: Any) -> Qwen2ForCausalLM:
    """Return a random Qwen2 of hidden size 256 and 4 layers, float32; always the same one."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=768,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        **named,
    )
    return Qwen2ForCausalLM(config)


def make_policy(case: Case) -> Policy:
    """The small Qwen2 with the embedded model's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(assets_path())
    return wrap_policy(small_qwen2(case.vocabulary, tied=case.tied), tokenizer, name="random")


class Ours:
    """`shoal_policy.update.grpo.update` as the trainer calls it, with its default settings."""

    def __init__(self, case: Case) -> None:
        self.policy, self._groups = make_policy(case), make_groups(case)
        self.optimizer = make_optimizer(self.policy, lr=LEARNING_RATE)
        self._config = GrpoConfig(epsilon_low=EPSILON, epsilon_high=EPSILON)

    def step(self) -> Outcome:
        stats = update(self.policy, self.optimizer, self._groups, self._config)
        return Outcome(loss=stats.loss, grad_norm=stats.grad_norm)


class Plain:
    """Full logits of every completion position; the batch is padded once, as TRL pads it."""

    def __init__(self, case: Case) -> None:
        self.policy = make_policy(case)
        self.optimizer = make_optimizer(self.policy, lr=LEARNING_RATE)
        self._parts = micro_batches(padded_batch(make_groups(case)))

    def step(self) -> Outcome:
        total = 0.0
        for part in self._parts:
            loss = self._loss(part) / len(self._parts)
            loss.backward()
            total += float(loss.detach())
        return Outcome(loss=total, grad_norm=_finish(self.policy.model, self.optimizer))

    def _loss(self, part: dict[str, torch.Tensor]) -> torch.Tensor:
        ids_BN, mask_BN = part["completion_ids"], part["completion_mask"]
        logits_BNV = self.policy.model(
            input_ids=torch.cat([part["prompt_ids"], ids_BN], dim=1),
            attention_mask=torch.cat([part["prompt_mask"], mask_BN], dim=1),
            logits_to_keep=ids_BN.shape[1] + 1,
            use_cache=False,
        ).logits[:, :-1]
        logprobs_BN = logits_BNV.log_softmax(-1).gather(-1, ids_BN[..., None])[..., 0]
        ratio_BN = (logprobs_BN - logprobs_BN.detach()).exp()
        advantage_B1 = part["advantages"][:, None]
        held_BN = ratio_BN.clamp(1 - EPSILON, 1 + EPSILON)
        gain_BN = torch.minimum(ratio_BN * advantage_B1, held_BN * advantage_B1)
        return -((gain_BN * mask_BN).sum(-1) / mask_BN.sum(-1)).mean()


class Trl:
    """The installed TRL's `_compute_loss`, gradients added up over its micro-batches.

    Its default is gradient checkpointing, which computes each layer twice.
    """

    def __init__(self, case: Case, folder: str, *, checkpointing: bool) -> None:
        self.policy = make_policy(case)
        self._trainer = _trl_trainer(self.policy, folder)
        if checkpointing:
            # As its `train()` does by default.
            self.policy.model.activation_checkpointing_enable()
        self._parts = micro_batches(padded_batch(make_groups(case)))
        self._trainer.current_gradient_accumulation_steps = len(self._parts)
        self.optimizer = make_optimizer(self.policy, lr=LEARNING_RATE)

    def step(self) -> Outcome:
        total, trainer = 0.0, self._trainer
        trainer.model.train()
        trainer._metrics["train"].clear()
        for part in self._parts:
            loss = trainer._compute_loss(trainer.model, part)
            loss.backward()
            total += float(loss.detach())
        return Outcome(loss=total, grad_norm=_finish(self.policy.model, self.optimizer))


def _trl_trainer(policy: Policy, folder: str) -> Any:
    # By name: neither tells a type checker what it exports.
    datasets, trl = importlib.import_module("datasets"), importlib.import_module("trl")
    config = trl.GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,  # see `Trl`: only `train()` would act on it
        disable_dropout=True,
        report_to=[],
        loss_type="grpo",
        epsilon=EPSILON,
        num_generations=COMPLETIONS,
        per_device_train_batch_size=MICRO_BATCH,
        gradient_accumulation_steps=GROUPS,
        max_completion_length=LONGEST,
    )
    return trl.GRPOTrainer(
        model=policy.model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=datasets.Dataset.from_list([{"prompt": "1"}] * GROUPS),
        processing_class=copy.deepcopy(policy.tokenizer),
    )


def padded_batch(groups: Sequence[TrainGroup]) -> dict[str, torch.Tensor]:
    """All rows as TRL holds them: prompts padded left, completions right, to one width."""
    prompts = [list(group.prompt_ids) for group in groups for _ in group.completions]
    completions = [list(ids) for group in groups for ids in group.completions]
    return {
        "prompt_ids": _padded(prompts, left=True),
        "prompt_mask": _padded([[1] * len(row) for row in prompts], left=True),
        "completion_ids": _padded(completions),
        "completion_mask": _padded([[1] * len(row) for row in completions]),
        "advantages": torch.tensor([a for group in groups for a in group.advantages]),
        "num_items_in_batch": torch.tensor(float(sum(map(len, completions)))),
    }


def micro_batches(batch: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """Cut a batch as TRL does: into equal parts of the whole width."""
    num_rows = len(batch["advantages"])
    return [
        {
            name: value if value.ndim == 0 else value[start : start + MICRO_BATCH]
            for name, value in batch.items()
        }
        for start in range(0, num_rows, MICRO_BATCH)
    ]


def _padded(rows: Sequence[list[int]], *, left: bool = False) -> torch.Tensor:
    width = max(map(len, rows))
    pads = [[0] * (width - len(row)) for row in rows]
    filled = [pad + row if left else row + pad for pad, row in zip(pads, rows, strict=True)]
    return torch.tensor(filled)


def _finish(model: Any, optimizer: Any) -> float:
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def make_candidate(name: str, case: Case, folder: str) -> Candidate:
    """Build ``ours``, ``plain``, ``trl`` or ``trl_default``; `folder` is where TRL may write."""
    match name:
        case "ours":
            return Ours(case)
        case "plain":
            return Plain(case)
        case "trl" | "trl_default":
            return Trl(case, folder, checkpointing=name == "trl_default")
    raise ValueError(name)

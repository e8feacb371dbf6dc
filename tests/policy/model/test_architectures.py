"""Models of several families through the whole life of a trainer: rounds, checkpoint, resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from shoal_policy.model.loading import PromptFormat
from shoal_policy.trainer import Trainer
from tests.policy import tiny_models
from tests.policy import training_cases as case

SIZES: dict[str, Any] = {
    "vocab_size": tiny_models.VOCAB,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "head_dim": 8,
    "max_position_embeddings": case.POSITIONS,
}
KINDS: dict[str, tuple[Any, Any]] = {
    "qwen2": (Qwen2ForCausalLM, Qwen2Config),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config),
    "llama": (LlamaForCausalLM, LlamaConfig),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config),
}
ARCHITECTURES = (*KINDS, "gpt2")
CHAT = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def folder(root: Path, architecture: str, *, chat: bool = False) -> str:
    """A random model of the architecture with a tokenizer, as a folder."""
    torch.manual_seed(0)
    if architecture == "gpt2":
        model: Any = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=tiny_models.VOCAB,
                n_embd=32,
                n_layer=2,
                n_head=4,
                n_positions=case.POSITIONS,
                bos_token_id=1,
                eos_token_id=2,
                pad_token_id=0,
            )
        )
    else:
        make_model, config = KINDS[architecture]
        model = make_model(config(**SIZES))
    tokenizer = tiny_models.tokenizer(answer_token=not chat)
    if chat:
        tokenizer.chat_template = CHAT
    path = root / architecture
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def trainer(data_dir: Path, model: str, **changes: Any) -> Trainer:
    data_dir.mkdir(exist_ok=True)
    return case.trainer(data_dir, model, **changes)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_learns_and_goes_on_after_a_restart(architecture: str, tmp_path: Path) -> None:
    model = folder(tmp_path, architecture, chat=architecture == "qwen3")
    whole = trainer(tmp_path / "whole", model, rounds=2)
    wanted = PromptFormat.CHAT if architecture == "qwen3" else PromptFormat.TINY
    assert whole.course.policy.prompt_format is wanted
    start = case.weights(whole.course.policy)
    whole.run()
    ended = case.weights(whole.course.policy)
    assert whole.course.policy_version == 2
    changed = [name for name in ended if not torch.equal(start[name], ended[name])]
    assert len(changed) > len(ended) / 2
    trainer(tmp_path / "parts", model, rounds=1).run()
    resumed = trainer(tmp_path / "parts", model, rounds=2)
    assert resumed.course.round == 1
    resumed.run()
    assert case.same_weights(ended, case.weights(resumed.course.policy))


@pytest.mark.parametrize("rank", [0, 2])
def test_a_template_is_left_out_where_that_is_asked_for(rank: int, tmp_path: Path) -> None:
    if rank:
        pytest.importorskip("peft")
    model = folder(tmp_path, "qwen3", chat=True)
    for rounds in (1, 2):
        made = trainer(tmp_path / "d", model, rounds=rounds, prompt="plain", lora_rank=rank)
        assert made.course.round == rounds - 1
        assert made.course.policy.prompt_format is PromptFormat.PLAIN
        made.run()


@pytest.mark.parametrize("architecture", ["qwen3", "gemma2", "gpt2"])
def test_in_bfloat16(architecture: str, tmp_path: Path) -> None:
    model = folder(tmp_path, architecture)
    changes = {"dtype": "bfloat16", "learning_rate": 0.01, "rounds": 2}
    made = trainer(tmp_path / "d", model, **changes)
    assert made.course.policy.model.dtype == torch.bfloat16
    start = case.weights(made.course.policy)
    made.run()
    assert not case.same_weights(start, case.weights(made.course.policy))
    again = trainer(tmp_path / "d", model, **changes)
    assert again.course.policy.model.dtype == torch.bfloat16
    assert case.same_weights(case.weights(made.course.policy), case.weights(again.course.policy))

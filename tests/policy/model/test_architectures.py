"""Models of several families through the whole life of a trainer: rounds, checkpoint, resuming."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal_policy.model.loading import PromptFormat
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.policy.training_cases import trainer

ARCHITECTURES = ("qwen2", "qwen3", "llama", "gemma2", "gpt2")
CHAT = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def folder(root: Path, architecture: str, template: str | None = None) -> str:
    """A random model of the architecture with a tokenizer."""
    model = tiny_models.model(architecture, positions=case.POSITIONS)
    return tiny_models.save(root / architecture, model, tiny_models.tokenizer(template=template))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_learns_and_goes_on_after_a_restart(architecture: str, tmp_path: Path) -> None:
    model = folder(tmp_path, architecture, CHAT if architecture == "qwen3" else None)
    start, whole = case.assert_resumes(tmp_path, partial(trainer, model=model), rounds=2)
    wanted = PromptFormat.CHAT if architecture == "qwen3" else PromptFormat.TINY
    assert whole.training_run.policy.prompt_format is wanted
    assert whole.training_run.policy_version == 2
    ended = case.weights(whole.training_run.policy)
    changed = [name for name in ended if not torch.equal(start[name], ended[name])]
    assert len(changed) > len(ended) / 2


@pytest.mark.parametrize("rank", [0, 2])
def test_a_template_is_skipped_on_request(rank: int, tmp_path: Path) -> None:
    if rank:
        pytest.importorskip("peft")
    model = folder(tmp_path, "qwen3", CHAT)
    for rounds in (1, 2):
        made = trainer(tmp_path / "d", model, rounds=rounds, prompt="plain", lora_rank=rank)
        assert made.training_run.round == rounds - 1
        assert made.training_run.policy.prompt_format is PromptFormat.PLAIN
        made.run()


@pytest.mark.parametrize("architecture", ["qwen3", "gemma2", "gpt2"])
def test_in_bfloat16(architecture: str, tmp_path: Path) -> None:
    model = folder(tmp_path, architecture)
    changes: dict[str, Any] = {"dtype": "bfloat16", "learning_rate": 0.01, "rounds": 2}
    made = trainer(tmp_path / "d", model, **changes)
    assert made.training_run.policy.model.dtype == torch.bfloat16
    start = case.weights(made.training_run.policy)
    made.run()
    assert not case.same_weights(start, case.weights(made.training_run.policy))
    again = trainer(tmp_path / "d", model, **changes)
    assert again.training_run.policy.model.dtype == torch.bfloat16
    assert case.same_weights(
        case.weights(made.training_run.policy), case.weights(again.training_run.policy)
    )

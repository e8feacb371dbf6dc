"""LoRA: small adapters that train, resume exactly, load elsewhere and merge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from shoal_policy.checkpoint.saved import CheckpointError, latest_checkpoint
from shoal_policy.model import lora
from shoal_policy.model.loading import Policy
from shoal_policy.model.lora import adapter_rank, add_adapter, merge_adapter
from shoal_policy.trainer import Trainer
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.policy.update.update_cases import recorded

peft = pytest.importorskip("peft")

IDS = torch.tensor([[1, 7, 9, 20, 5], [1, 30, 8, 8, 2]])


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=IDS).logits


def stirred(architecture: str) -> Policy:
    return tiny_models.with_adapter(tiny_models.policy(architecture), std=0.3)


def trainer(data_dir: Path, model: str, **changes: Any) -> Trainer:
    return case.trainer(data_dir, model, **{"lora_rank": 2, **changes})


@pytest.mark.parametrize("architecture", tiny_models.ARCHITECTURES)
def test_a_fresh_adapter_changes_nothing_and_alone_is_trained(architecture: str) -> None:
    plain = logits(tiny_models.model(architecture))
    policy = add_adapter(tiny_models.policy(architecture), 2, seed=3)
    assert torch.equal(logits(policy.model), plain)
    trained = [name for name, weight in policy.model.named_parameters() if weight.requires_grad]
    assert trained and all(".lora_" in name for name in trained)
    head = policy.model.get_output_embeddings()
    assert type(head) is torch.nn.Linear, "the output matrix is read past its module"
    assert not torch.allclose(logits(stirred(architecture).model), plain)
    assert adapter_rank(policy) == 2
    assert adapter_rank(tiny_models.policy(architecture)) == 0


@pytest.mark.parametrize("architecture", tiny_models.ARCHITECTURES)
def test_what_is_generated_comes_from_model_and_adapter_together(architecture: str) -> None:
    policy, prompt = stirred(architecture), [1, 9, 12, 4]
    greedy = tiny_models.sampling(5, temperature=0.0)
    ((made,),) = tiny_models.draw(policy, [prompt], num=1, params=greedy)
    ids = torch.tensor([[*prompt, *made.ids]])
    with torch.inference_mode():
        best = policy.model(input_ids=ids, use_cache=False).logits[0].argmax(-1)
    assert best[len(prompt) - 1 : -1].tolist() == list(made.ids)


def test_merging_keeps_the_function(tmp_path: Path) -> None:
    for architecture in tiny_models.ARCHITECTURES:
        policy = stirred(architecture)
        before = logits(policy.model)
        merge_adapter(policy).save_pretrained(tmp_path / architecture)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / architecture).eval()
        assert torch.allclose(logits(loaded), before, atol=1e-4), architecture
        assert not [name for name in loaded.state_dict() if "lora" in name]


@contextmanager
def types_of_products(policy: Policy) -> Iterator[set[torch.dtype]]:
    """The types that adapters' matrices give meanwhile."""
    used: set[torch.dtype] = set()
    matrices = [
        module
        for name, module in policy.model.named_modules()
        if ".lora_" in name and isinstance(module, torch.nn.Linear)
    ]
    hooks = [
        one.register_forward_hook(lambda _m, _given, made: used.add(made.dtype)) for one in matrices
    ]
    yield used
    for hook in hooks:
        hook.remove()


def test_adapters_stay_float32_and_compute_in_the_models_type() -> None:
    found = {}
    for dtype in (torch.bfloat16, torch.float32):
        policy = tiny_models.policy()
        policy.model.to(torch.bfloat16).to(dtype)
        policy = tiny_models.with_adapter(policy, std=0.3)
        recorded(policy)  # the first looks at the model once, in a way of its own
        with types_of_products(policy) as used:
            _, (gradients,) = recorded(policy)
        assert used == {dtype}
        assert {one.dtype for one in gradients.values()} == {torch.float32}
        found[dtype] = torch.cat([one.flatten() for one in gradients.values()])
    assert torch.nn.functional.cosine_similarity(*found.values(), dim=0) > 0.99


def test_a_resumed_run_is_the_run_that_was_not_interrupted(tmp_path: Path, model: str) -> None:
    start, whole = case.assert_resumes(tmp_path, partial(trainer, model=model), rounds=4)
    ended = case.weights(whole.training_run.policy)
    changed = {name for name in ended if not torch.equal(start[name], ended[name])}
    assert changed and all(".lora_" in name for name in changed)


def test_a_checkpoint_is_small_and_peft_loads_it_elsewhere(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path / "d", model, rounds=2)
    made.run()
    found = latest_checkpoint(tmp_path / "d").path
    assert found is not None
    names = {file.name for file in (found / "model").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= names
    assert not [name for name in names if name.startswith("model")]
    assert json.loads((found / "model" / "base.json").read_text())["model"] == model
    base = AutoModelForCausalLM.from_pretrained(model)
    elsewhere = peft.PeftModel.from_pretrained(base, str(found / "model")).eval()
    assert torch.equal(logits(elsewhere), logits(made.training_run.policy.model))
    assert not torch.equal(logits(elsewhere), logits(AutoModelForCausalLM.from_pretrained(model)))


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path, model: str) -> None:
    trainer(tmp_path / "d", model, rounds=1).run()
    for other in (0, 4):
        with pytest.raises(CheckpointError, match="--no-resume"):
            trainer(tmp_path / "d", model, lora_rank=other)


def test_adapters_of_another_scale_go_on_as_they_are(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions had a setting for it."""
    with monkeypatch.context() as earlier:
        earlier.setattr(lora, "ALPHA_OF_RANK", 3.5)
        trainer(tmp_path / "d", model, rounds=1).run()
    resumed = trainer(tmp_path / "d", model, rounds=2)
    assert resumed.training_run.policy.adapter.peft_config["default"].lora_alpha == 7
    resumed.run()
    assert resumed.training_run.round == 2


def test_an_adapter_does_not_go_onto_other_weights(tmp_path: Path) -> None:
    folder = case.model_folder(tmp_path / "base")
    trainer(tmp_path / "d", folder, rounds=1).run()
    other = tiny_models.model("qwen2", seed=9, positions=case.POSITIONS)
    other.save_pretrained(folder)
    with pytest.raises(CheckpointError, match="different weights"):
        trainer(tmp_path / "d", folder)

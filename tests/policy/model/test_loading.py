"""Loading: any causal model from a folder; one clear line for everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from shoal_policy.model import loading
from shoal_policy.model.loading import (
    Policy,
    PromptFormat,
    check_model,
    load_policy,
    load_tokenizer,
    wrap_policy,
)
from shoal_policy.model.logit_form import LogitForm
from tests.policy import tiny_models
from tests.policy.tiny_models import refused, save


@pytest.mark.parametrize("architecture", tiny_models.ARCHITECTURES)
def test_a_folder_loads_as_it_was_saved(architecture: str, tmp_path: Path) -> None:
    model = tiny_models.model(architecture)
    path = save(tmp_path, model)
    policy = load_policy(path, device="cpu", seed=1)
    for name, weight in policy.model.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name
    assert policy.name == path
    assert policy.eos_ids == {2} and policy.eos_id == 2 and policy.pad_id == 0
    assert policy.max_positions == 96
    assert policy.prompt_format is PromptFormat.TINY
    assert policy.linear_head
    assert not policy.model.training
    assert policy.model.dtype == torch.float32
    assert len(policy.tokenizer_digest) == 16


def test_the_digest_follows_the_vocabulary_and_nothing_else(tmp_path: Path) -> None:
    one = tiny_models.policy("qwen2")
    other_model = wrap_policy(tiny_models.model("gpt2"), tiny_models.tokenizer(), name="x")
    reloaded = load_policy(save(tmp_path, one.model), device="cpu")
    assert one.tokenizer_digest == other_model.tokenizer_digest == reloaded.tokenizer_digest
    other_words = tiny_models.tokenizer(answer_token=False)
    other = wrap_policy(tiny_models.model("gpt2"), other_words, name="x")
    assert other.tokenizer_digest != one.tokenizer_digest


def test_all_end_tokens_are_known() -> None:
    model = tiny_models.model("qwen2")
    model.generation_config.eos_token_id = [7, 2]
    policy = wrap_policy(model, tiny_models.tokenizer(), name="x")
    assert policy.eos_ids == {2, 7} and policy.eos_id == 2


def test_prompt_formats() -> None:
    model, tokenizer = tiny_models.model("qwen2"), tiny_models.tokenizer(answer_token=False)
    assert wrap_policy(model, tokenizer, name="x").prompt_format is PromptFormat.PLAIN
    assert wrap_policy(model, tokenizer, name="x", prompt="plain").prompt_format == "plain"
    with refused("'x' has no chat template: omit --prompt"):
        wrap_policy(model, tokenizer, name="x", prompt="chat")
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    assert wrap_policy(model, tokenizer, name="x").prompt_format is PromptFormat.CHAT
    assert wrap_policy(model, tokenizer, name="x", prompt="chat").prompt_format == "chat"
    assert wrap_policy(model, tokenizer, name="x", prompt="plain").prompt_format == "plain"
    for requested in ("chat", "plain"):
        with refused("'x' has its own prompt format: omit --prompt"):
            wrap_policy(model, tiny_models.tokenizer(), name="x", prompt=requested)


def test_a_head_that_scales_its_logits_is_noticed() -> None:
    policy = tiny_models.policy("cohere", logit_scale=0.5)
    assert policy.logit_form == LogitForm(scale=0.5) and not policy.linear_head


def test_a_soft_cap_is_noticed_however_small_the_logits_are() -> None:
    for size in (1e-3, 1.0, 30.0):
        policy = capped_policy(size)
        assert policy.logit_form == LogitForm(soft_cap=3.0) and not policy.linear_head, size


def test_emulated_bfloat16_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[bool] = []

    def emulates(including_emulation: bool = True) -> bool:
        requested.append(including_emulation)
        return including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", emulates)
    assert loading.autocast_dtype(torch.device("cuda")) is None and requested == [False]


def capped_policy(size: float) -> Policy:
    """A Gemma 2 whose logits are capped at 3, and small or large by `size`."""
    policy = tiny_models.policy("gemma2", final_logit_softcapping=3.0)
    with torch.no_grad():
        policy.model.model.norm.weight.fill_(size - 1)  # Gemma adds one
    return policy


def test_a_model_that_sees_later_tokens_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=tiny_models.VOCAB, intermediate_size=32, **sizes)
    with refused("not causal"):
        load_policy(save(tmp_path, BertForMaskedLM(config)), device="cpu")


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "no-such-architecture"}')


def break_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\0" * 64)


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def remove_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def lose_a_layer(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text(
        config.read_text()
        .replace('"num_hidden_layers": 2', '"num_hidden_layers": 3')
        .replace('"full_attention"\n', '"full_attention",\n    "full_attention"\n')
    )


@pytest.mark.parametrize(
    "spoil", [break_config, break_weights, remove_weights, remove_tokenizer, lose_a_layer]
)
def test_a_damaged_folder_is_one_clear_line(spoil: Any, tmp_path: Path) -> None:
    path = save(tmp_path)
    spoil(tmp_path)
    with refused(path):
        load_policy(path, device="cpu")


def test_quantised_weights_are_refused_before_they_are_loaded(tmp_path: Path) -> None:
    path = save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with refused("its weights are quantised"):
        check_model(path, device="cpu")


def test_a_missing_folder_is_reported_as_missing() -> None:
    # The last three are not valid hub names: the hub is not asked.
    folders = ("./nowhere", "/nowhere/at/all", "~/nowhere-at-all")
    for path in (*folders, "runs/21/model", "runs/model/", "my model"):
        with refused("no such folder"):
            load_policy(path)


@pytest.mark.parametrize("nothing", ["", " "])
def test_no_name_is_not_this_folder(nothing: str) -> None:
    with refused("--model is empty"):
        load_policy(nothing)


def test_a_folder_without_a_model_is_reported(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    for load in (load_policy, load_tokenizer, check_model):
        with refused("this folder has no config.json"):
            load(str(tmp_path))


def test_an_unreachable_hub_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with refused("unknown/no-such-model", "no folder here has that name"):
        load_policy("unknown/no-such-model")


def test_unknown_device_and_dtype() -> None:
    with refused("device"):
        load_policy("tiny", device="abacus")
    with refused("dtype"):
        load_policy("tiny", dtype="float7")


def test_a_tokenizer_larger_than_the_model_is_refused() -> None:
    with refused("tokenizer has"):
        tiny_models.policy(vocab=30)


@pytest.mark.parametrize("declared", ["x", [2, "x"], 1.5, True, {"a": 1}])
def test_an_end_token_that_is_no_number_is_refused(declared: Any) -> None:
    model = tiny_models.model("qwen2")
    model.generation_config.eos_token_id = declared
    with refused("is not a number"):
        wrap_policy(model, tiny_models.tokenizer(), name="x")


@pytest.mark.parametrize("declared", [None, -1, 1 << 40, [None, -1]])
def test_an_end_token_that_the_model_cannot_say_is_passed_over(declared: Any) -> None:
    model, tokenizer = tiny_models.model("qwen2"), tiny_models.tokenizer()
    model.generation_config.eos_token_id = declared
    assert wrap_policy(model, tokenizer, name="x").eos_ids == {tokenizer.eos_token_id}
    tokenizer.eos_token = None
    with refused("end-of-sequence"):
        wrap_policy(model, tokenizer, name="x")


@pytest.mark.parametrize("declared", [-1, 0])
def test_a_length_that_is_none_is_no_limit(declared: Any) -> None:
    model = tiny_models.model("qwen2")
    model.config.max_position_embeddings = declared
    assert wrap_policy(model, tiny_models.tokenizer(), name="x").max_positions > 1 << 20


def test_a_model_of_endless_layers_is_refused_before_it_is_built(tmp_path: Path) -> None:
    path = Path(save(tmp_path)) / "config.json"
    config = json.loads(path.read_text()) | {"num_hidden_layers": 1 << 31, "layer_types": None}
    path.write_text(json.dumps(config))
    with refused("num_hidden_layers is 2,147,483,648"):
        check_model(str(tmp_path))

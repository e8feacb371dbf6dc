"""LoRA through peft: small trainable adapters on a frozen model (arXiv 2106.09685).

The adapters are put *into* the model: everywhere else it stays the causal LM it was, and only
its trainable weights are fewer. Saving writes peft's own format, which
``peft.PeftModel.from_pretrained`` loads onto the same base model anywhere.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from shoal_base.visible import first_line
from shoal_policy.model.loading import ModelError, Policy

ADAPTER_CONFIG = "adapter_config.json"
BASE_FILE = "base.json"
"""Beside the adapter: which base weights it belongs to."""

ALPHA_OF_RANK = 2.0
"""Alpha of fresh adapters as a multiple of their rank: their output is scaled by it. The usual
choice of recipes for LoRA; no other was measured here."""
_FINGERPRINT_ELEMENTS = 64
"""Numbers read of each weight: enough to tell models apart, and next to nothing to read."""


def add_adapter(policy: Policy, rank: int, *, seed: int) -> Policy:
    """Freeze the policy's model and put fresh adapters of a rank into it, in place.

    Every linear layer gets one but the output matrix, which the update reads past its module so
    that logits are never held whole. A fresh adapter changes nothing: one of its two matrices is
    zero. Seeds torch's global generator. Raises ModelError when peft is missing, or when the model
    has no such layer.
    """
    peft = _peft()
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=rank,
        lora_alpha=ALPHA_OF_RANK * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in policy.model.modules()),
    )
    torch.manual_seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adapter = peft.get_peft_model(policy.model, config)
    except ValueError as error:
        raise ModelError(f"cannot adapt model {policy.name!r}: {first_line(error)}") from error
    return _with(policy, adapter)


def _with(policy: Policy, adapter: Any) -> Policy:
    """The policy with an adapter in its model, computing in the model's own type.

    Adapters stay float32; multiplied as such they would cost a bfloat16 model a tenth of an update
    on a CPU, and on a GPU its fast units.
    """
    policy.model.eval()
    half = torch.bfloat16 if policy.model.dtype == torch.bfloat16 else None
    return dataclasses.replace(
        policy,
        adapter=adapter,
        autocast_dtype=policy.autocast_dtype or half,
        base_mark=fingerprint(policy.model),
    )


def is_adapter(folder: Path) -> bool:
    """Return whether `folder` holds an adapter and not a whole model."""
    return (folder / ADAPTER_CONFIG).is_file()


def save_adapter(policy: Policy, folder: Path) -> None:
    """Write the policy's adapter, in peft's format, and the mark of its base."""
    weights = policy.weights()
    state = weights and {f"base_model.model.{name}": value for name, value in weights.items()}
    # Not the embeddings: asking whether they changed would ask the hub for the original.
    policy.adapter.save_pretrained(folder, state_dict=state, save_embedding_layers=False)
    mark = {"model": policy.name, "fingerprint": policy.base_mark}
    (folder / BASE_FILE).write_text(json.dumps(mark))


def load_adapter(policy: Policy, folder: Path) -> Policy:
    """Put a saved adapter into the policy's model, in place, ready to train on.

    Raises:
        ModelError: peft is missing, or the adapter belongs to other base weights.
    """
    peft = _peft()
    if (folder / BASE_FILE).is_file():
        wanted = json.loads((folder / BASE_FILE).read_text())["fingerprint"]
        if wanted != fingerprint(policy.model):
            raise ModelError(
                f"the adapter was trained on other weights of {policy.name!r} than these: "
                "another --dtype, or its files have changed"
            )
    adapter = peft.PeftModel.from_pretrained(policy.model, str(folder), is_trainable=True)
    return _with(policy, adapter)


def merged(policy: Policy) -> Any:
    """The model with its adapter added into its weights; the policy must not be used after.

    Added in float32, whatever the model's type: bfloat16 would round most of an early adapter
    away. A policy without an adapter is its own model.
    """
    if policy.adapter is None:
        return policy.model
    policy.model.float()
    return policy.adapter.merge_and_unload()


def rank_of(policy: Policy) -> int:
    """Return the rank of the policy's adapter; 0 when it has none."""
    return 0 if policy.adapter is None else int(policy.adapter.peft_config["default"].r)


def fingerprint(model: Any) -> str:
    """A digest of the base weights: of each its name, shape, type and first elements."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        if ".lora_" in name:
            continue
        start = weight.detach().flatten()[:_FINGERPRINT_ELEMENTS].float().cpu()
        plain = name.replace(".base_layer.", ".")
        digest.update(f"{plain} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(start.numpy().tobytes())
    return digest.hexdigest()


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise ModelError("LoRA needs peft: install shoal's extra `lora`") from None
    return peft

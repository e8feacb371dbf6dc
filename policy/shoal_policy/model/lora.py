"""LoRA through peft: small trainable adapters on a frozen model (arXiv 2106.09685).

Adapters are added *into* the model: everywhere else it remains the same causal LM with fewer
trainable weights. Checkpoints use peft's own format, which ``peft.PeftModel.from_pretrained`` loads
onto the same base model.
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
"""Stored with the adapter: identifies its base weights."""

ALPHA_OF_RANK = 2.0
"""Alpha of fresh adapters as a multiple of their rank; it scales their output. The usual choice for
LoRA; no other was measured here."""
_FINGERPRINT_ELEMENTS = 64
"""Elements read of each weight: enough to tell models apart, and almost no work."""


def add_adapter(policy: Policy, rank: int, *, seed: int) -> Policy:
    """Freeze the policy's model and add fresh adapters of a rank, in place.

    Every linear layer gets one except the output matrix, which the update reads directly so that
    logits are never materialised. A fresh adapter changes nothing, since one of its two matrices is
    zero. Seeds torch's global generator. Raises ModelError if peft is missing or the model has no
    such layer.
    """
    peft = _peft()
    targets = _targets(policy)
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=rank,
        lora_alpha=ALPHA_OF_RANK * rank,
        lora_dropout=0.0,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in policy.model.modules()),
    )
    torch.manual_seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adapter = peft.get_peft_model(policy.model, config)
    except ValueError as error:
        raise ModelError(f"cannot adapt model {policy.name!r}: {first_line(error)}") from error
    return _attach_adapter(policy, adapter)


def _targets(policy: Policy) -> list[str]:
    """Return the names of the layers that get an adapter.

    Routers of experts are excluded, since some return more than a product, and so is the last layer
    of a Mamba block: its fused kernels read the matrix past the layer.
    """
    model, head = policy.model, policy.model.get_output_embeddings()
    found = []
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear | Conv1D) or module is head:
            continue
        if "Router" in type(module).__name__:
            continue
        parent, _, last = name.rpartition(".")
        if last == "out_proj" and hasattr(model.get_submodule(parent), "A_log"):
            continue
        found.append(name)
    if not found:
        raise ModelError(f"cannot adapt model {policy.name!r}: it has no linear layer to adapt")
    return found


def _attach_adapter(policy: Policy, adapter: Any) -> Policy:
    """Return the policy with its adapter, computing in the model's own type.

    Adapters stay float32. Without autocast that would cost a bfloat16 model a tenth of an update on
    a CPU, and the tensor cores on a GPU.
    """
    policy.model.eval()
    half = torch.bfloat16 if policy.model.dtype == torch.bfloat16 else None
    return dataclasses.replace(
        policy,
        adapter=adapter,
        autocast_dtype=policy.autocast_dtype or half,
        base_fingerprint=fingerprint(policy.model),
    )


def is_adapter(folder: Path) -> bool:
    """Return whether `folder` holds an adapter instead of a whole model."""
    return (folder / ADAPTER_CONFIG).is_file()


def save_adapter(policy: Policy, folder: Path) -> None:
    """Write the policy's adapter in peft's format, with the fingerprint of its base."""
    weights = policy.weights()
    state = weights and {f"base_model.model.{name}": value for name, value in weights.items()}
    # Without embeddings: peft would download the original to see whether they changed.
    policy.adapter.save_pretrained(folder, state_dict=state, save_embedding_layers=False)
    mark = {"model": policy.name, "fingerprint": policy.base_fingerprint}
    (folder / BASE_FILE).write_text(json.dumps(mark))


def load_adapter(policy: Policy, folder: Path) -> Policy:
    """Add a saved adapter to the policy's model, in place, trainable.

    Raises:
        ModelError: peft is missing, or the adapter belongs to different base weights.
    """
    peft = _peft()
    if (folder / BASE_FILE).is_file():
        wanted = json.loads((folder / BASE_FILE).read_text())["fingerprint"]
        if wanted != fingerprint(policy.model):
            raise ModelError(
                f"the adapter was trained on different weights of {policy.name!r}: "
                "another --dtype, or its files have changed"
            )
    adapter = peft.PeftModel.from_pretrained(policy.model, str(folder), is_trainable=True)
    return _attach_adapter(policy, adapter)


def merge_adapter(policy: Policy) -> Any:
    """Return the model with its adapter merged into the weights; the policy is unusable after.

    Merged in float32 whatever the model's type: bfloat16 would round away most of an early adapter.
    Without an adapter the model itself is returned.
    """
    if policy.adapter is None:
        return policy.model
    policy.model.float()
    return policy.adapter.merge_and_unload()


def adapter_rank(policy: Policy) -> int:
    """Return the rank of the policy's adapter; 0 without one."""
    return 0 if policy.adapter is None else int(policy.adapter.peft_config["default"].r)


def fingerprint(model: Any) -> str:
    """Return a digest of the base weights: name, shape, type and first elements of each."""
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

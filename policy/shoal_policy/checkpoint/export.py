"""`shoal export model`: the newest checkpoint as a model folder for other programs."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from shoal_policy.checkpoint.saved import CheckpointError
from shoal_policy.checkpoint.saving import load_checkpoint
from shoal_policy.model.lora import merge_adapter
from shoal_settings.schema import Settings


def export_model(
    settings: Settings, found: Path, folder: Path, on_step: Callable[[str], None]
) -> None:
    """Write a checkpoint's model and tokenizer to a new `folder`, LoRA adapters merged.

    `on_step` is called with a line before each step, since a large model takes minutes.

    ``AutoModelForCausalLM.from_pretrained(folder)`` loads the result. Raises CheckpointError if the
    checkpoint cannot be read or `folder` cannot be written; nothing is left behind then.
    """
    on_step(f"reading {found.name}")
    on_host = settings.model_copy(update={"device": "cpu"})
    policy = load_checkpoint(found, on_host).policy
    temporary = folder.with_name(f"{folder.name}.tmp-{secrets.token_hex(4)}")
    try:
        whole = merge_adapter(policy)
        weights = sum(each.numel() * each.element_size() for each in whole.parameters())
        on_step(f"writing {weights / 1e6:,.1f} MB to {folder}")
        whole.save_pretrained(temporary)
        policy.tokenizer.save_pretrained(temporary)
        temporary.rename(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(f"cannot write {folder}: {error.strerror or error}") from error

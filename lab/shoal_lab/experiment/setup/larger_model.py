"""A model of another size and tokenizer with the knowledge of `tiny-sparse`: nothing is trained.

Layers are doubled, each new one adding nothing at first (its output weights are zero), and the ids
of the tokenizer's bytes are permuted, with the rows of the embedding. So it starts exactly as
`tiny-sparse` does, and any later difference comes from size and tokenizer.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

from shoal_policy.tiny import embedded_folder

_TIMES = 2  # as many layers
_SEED = 7  # any; fixed, so that the model is the same


def make_larger_model(folder: Path) -> None:
    """Write the model to `folder`, unless it is there."""
    if (folder / "model.safetensors").exists():
        return
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    source = embedded_folder("tiny-sparse")
    assert source is not None
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    small = AutoModelForCausalLM.from_pretrained(source, trust_remote_code=False)
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    layers = config.num_hidden_layers
    config.num_hidden_layers = _TIMES * layers
    config.layer_types = None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        larger = type(config)(**_without_versions(config))
        large = AutoModelForCausalLM.from_config(larger, trust_remote_code=False)
    missing = large.load_state_dict(small.state_dict(), strict=False)
    assert not missing.unexpected_keys
    with torch.no_grad():
        for layer in large.model.layers[layers:]:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        rows = _deal_ids(source, part)
        embedding = large.get_input_embeddings().weight
        embedding.copy_(embedding[rows].clone())
    large.save_pretrained(part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def _without_versions(config: Any) -> dict[str, Any]:
    fields = config.to_dict()
    for key in ("layer_types", "transformers_version", "architectures"):
        fields.pop(key, None)
    return dict(fields)


def _deal_ids(source: Path, folder: Path) -> list[int]:
    """Write the tokenizer with other ids; return for each new id the old one."""
    folder.mkdir(parents=True)
    shutil.copy(source / "tokenizer_config.json", folder)
    document = json.loads((source / "tokenizer.json").read_text())
    vocab: dict[str, int] = document["model"]["vocab"]
    added = {token["content"] for token in document["added_tokens"]}
    bytes_ = sorted((token for token in vocab if token not in added), key=vocab.__getitem__)
    ids = [vocab[token] for token in bytes_]
    dealt = random.Random(_SEED).sample(ids, len(ids))
    rows = list(range(max([*vocab.values(), *(t["id"] for t in document["added_tokens"])]) + 1))
    for token, new in zip(bytes_, dealt, strict=True):
        rows[new] = vocab[token]
        vocab[token] = new
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return rows

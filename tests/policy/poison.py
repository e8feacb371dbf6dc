"""A model that one token spoils."""

from __future__ import annotations

import torch

from shoal_policy.model.loading import Policy

POISON = "z"
"""Text on which the model's numbers overflow."""


def poison_token(policy: Policy) -> int:
    """Make one token overflow; every weight stays finite, and text without it is sound.

    Only that token's embedding has a first component, and one cell of the first layer blows it up.
    """
    token = int(policy.tokenizer.convert_tokens_to_ids(POISON))
    model, layer = policy.model, policy.model.model.layers[0]
    with torch.no_grad():
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
        embeddings = model.get_input_embeddings().weight
        embeddings[:, 0] = 0.0
        embeddings[token, 0] = 1.0
        layer.self_attn.o_proj.weight[0] = 0.0
        for part in (layer.mlp.gate_proj, layer.mlp.up_proj):
            part.weight[0] = 0.0
            part.weight[0, 0] = 3e38
    return token

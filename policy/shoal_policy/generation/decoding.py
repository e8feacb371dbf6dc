"""Runs a causal LM token by token over a batch of left-padded prompts, with a key-value cache.

`CacheDecoder` works with any model for which ``transformers`` uses a ``DynamicCache``.
`SmallDecoder` computes the same for small Llama-shaped models. There most of a step is spent in
Python between operations, so it fuses them and writes into one preallocated cache. Prompts that
begin with worked examples use `prefix_decoder`.

Shapes: P prompts, R active rows, T prompt tokens (padded), M new tokens at most, W columns of
the cache in use, V vocabulary, H hidden size, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from shoal_policy.generation.preallocated_cache import build_cache
from shoal_policy.generation.prefix_decoder import PrefixDecoder, can_share
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.shards import unsharded_class

SMALL_PARAMETERS = 20_000_000
"""Above this size the arithmetic outweighs the Python overhead."""

_FIXED_ROPE = ("default", "linear", "llama3")
"""Rotary embeddings whose angles do not depend on the sequence length."""

_CACHE_NAMES = ("cache", "past_key_values")
"""``transformers`` renamed the argument in 5.24."""

_LLAMA_SHAPED = ("LlamaForCausalLM", "Qwen2ForCausalLM")


def make_decoder(
    policy: Policy, prompts: Sequence[Sequence[int]], repeat: int, max_new: int
) -> CacheDecoder | PrefixDecoder:
    """Return the fastest decoder for this policy and these prompts."""
    shared = can_share(policy, prompts, max_new)
    if shared is not None:
        return PrefixDecoder(policy, prompts, shared, repeat, max_new)
    kind = SmallDecoder if is_small_llama(policy) else CacheDecoder
    return kind(policy, prompts, repeat, max_new)


def is_small_llama(policy: Policy) -> bool:
    """Return whether `SmallDecoder` computes the same as the model."""
    model = policy.model
    if unsharded_class(model).__name__ not in _LLAMA_SHAPED or not policy.linear_head:
        return False
    if policy.adapter is not None:  # it reads base weights directly
        return False
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return (
        config.hidden_act == "silu"
        and kinds == {"full_attention"}
        and getattr(model.model.rotary_emb, "rope_type", None) in _FIXED_ROPE
        and model.dtype == torch.float32
        and policy.autocast_dtype is None
        and sum(weight.numel() for weight in model.parameters()) <= SMALL_PARAMETERS
    )


class CacheDecoder:
    """One batch with `repeat` rows per prompt; each prompt is computed once."""

    def __init__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], repeat: int, max_new: int
    ) -> None:
        self._policy = policy
        self._prompts = prompts
        self._repeat = repeat
        lengths_P = torch.tensor([len(prompt) for prompt in prompts], device=policy.device)
        self._lengths_R = lengths_P.repeat_interleave(repeat)
        self._width = int(lengths_P.max())
        self._padded = bool((lengths_P != self._width).any())
        places = torch.arange(self._width + max_new, device=policy.device)
        self._mask_RW = places[None, :] >= (self._width - self._lengths_R)[:, None]
        self._cache: Any = build_cache(policy, self._width + max_new)
        self._cache_name = _cache_name(policy)

    def prefill(self) -> torch.Tensor:
        """Run the prompts; return logits [R, V] of each row's first new token."""
        mask_PT = self._mask_RW[:: self._repeat, : self._width]
        logits_PV = self._call(
            self._padded_prompts(), mask_PT, (mask_PT.cumsum(-1) - 1).clamp(min=0)
        )
        rows = torch.arange(len(self._prompts), device=self._policy.device)
        self._cache.reorder_cache(rows.repeat_interleave(self._repeat))
        return logits_PV.repeat_interleave(self._repeat, dim=0)

    def step(self, ids_R: torch.Tensor, step: int) -> torch.Tensor:
        """Append the `step`-th new token (from 0) of each row; return logits [R, V] of the next."""
        mask_RW = self._mask_RW[:, : self._width + step + 1]
        # A finished row may be past the last position until it is dropped.
        positions_R = (self._lengths_R + step).clamp(max=self._policy.max_positions - 1)
        return self._call(ids_R[:, None], mask_RW, positions_R[:, None])

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows except these (indices into the active ones)."""
        self._cache.reorder_cache(rows)
        self._lengths_R = self._lengths_R[rows]
        self._mask_RW = self._mask_RW[rows]

    def _padded_prompts(self) -> torch.Tensor:
        """Return the ids of the prompts, [P, T], padded on the left."""
        pad, width = self._policy.pad_id, self._width
        return torch.tensor(
            [[pad] * (width - len(prompt)) + list(prompt) for prompt in self._prompts],
            device=self._policy.device,
        )

    def _call(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        arguments: dict[str, Any] = {"logits_to_keep": 1}
        if self._padded:
            arguments |= {"attention_mask": mask.long(), "position_ids": positions}
        known = self._policy.forward_names
        arguments = {name: value for name, value in arguments.items() if name in known}
        arguments[self._cache_name] = self._cache
        out = self._policy.model(input_ids=ids, use_cache=True, **arguments)
        self._cache = out[self._cache_name]
        return out.logits[:, -1]


def _cache_name(policy: Policy) -> str:
    """Return the model's argument name for its key-value cache.

    Raises ModelError if no known name exists: without a cache, each token would depend only on the
    one before it.
    """
    for name in _CACHE_NAMES:
        if name in policy.forward_names:
            return name
    raise ModelError(f"cannot generate with {policy.name!r}: its forward takes no key-value cache")


@dataclass(slots=True)
class SmallLayer:
    """One layer's weights, those with equal input concatenated, and its cache."""

    block: Any
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    key_heads: int
    keys: torch.Tensor
    """[R, key heads, W, D]; empty until the prompts are computed."""
    values: torch.Tensor


class SmallDecoder(CacheDecoder):
    """A small Llama or Qwen2, with fused operations."""

    def prefill(self) -> torch.Tensor:
        body, head = self._policy.model.model, self._policy.model.lm_head
        self._layers = [small_layer(block) for block in body.layers]
        self._cos_WD, self._sin_WD = rotary_tables(body, self._mask_RW.shape[1])
        width, lengths_P = self._width, self._lengths_R[:: self._repeat]
        columns_T = torch.arange(width, device=self._policy.device)
        positions_PT = (columns_T - (width - lengths_P)[:, None]).clamp(min=0)
        cos_PT1D, sin_PT1D = self._cos_WD[positions_PT, None], self._sin_WD[positions_PT, None]
        mask = None
        if self._padded:
            known = self._mask_RW[:: self._repeat, None, None, :width]
            # A padding token must see itself: attention over nothing gives NaN.
            itself = torch.eye(width, dtype=torch.bool, device=self._policy.device)
            mask = (known & itself.new_ones(width, width).tril()) | itself
        hidden_PTH = functional.embedding(self._padded_prompts(), body.embed_tokens.weight)
        for layer in self._layers:
            normed_PTH = rms_norm(hidden_PTH, layer.block.input_layernorm)
            attended_PTH = self._attend_prompts(layer, normed_PTH, cos_PT1D, sin_PT1D, mask)
            hidden_PTH = after_attention(layer, hidden_PTH, attended_PTH)
        logits_PV = head(rms_norm(hidden_PTH[:, -1], body.norm))
        return logits_PV.repeat_interleave(self._repeat, dim=0)

    def step(self, ids_R: torch.Tensor, step: int) -> torch.Tensor:
        body, head = self._policy.model.model, self._policy.model.lm_head
        column = self._width + step
        positions_R = self._lengths_R + step
        cos_R1D = self._cos_WD[positions_R, None]
        sin_R1D = self._sin_WD[positions_R, None]
        mask = self._mask_RW[:, None, None, : column + 1] if self._padded else None
        hidden_RH = functional.embedding(ids_R, body.embed_tokens.weight)
        for layer in self._layers:
            normed_RH = rms_norm(hidden_RH, layer.block.input_layernorm)
            attended_RH = _attend(layer, normed_RH, cos_R1D, sin_R1D, mask, column)
            hidden_RH = after_attention(layer, hidden_RH, attended_RH)
        return head(rms_norm(hidden_RH, body.norm))

    def _attend_prompts(
        self,
        layer: SmallLayer,
        normed_PTH: torch.Tensor,
        cos_PT1D: torch.Tensor,
        sin_PT1D: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Compute causal attention within each prompt; fill the cache of its rows."""
        prompts, width, _ = normed_PTH.shape
        size, key_heads = layer.block.self_attn.head_dim, layer.key_heads
        heads = functional.linear(normed_PTH, layer.qkv, layer.qkv_bias)
        heads = heads.view(prompts, width, -1, size)
        turned = rotated(heads[:, :, :-key_heads], cos_PT1D, sin_PT1D).transpose(1, 2)
        keys, values = turned[:, -key_heads:], heads[:, :, -key_heads:].transpose(1, 2)
        layer.keys, layer.values = self._allocate(keys), self._allocate(values)
        out = functional.scaled_dot_product_attention(
            turned[:, :-key_heads],
            keys,
            values,
            attn_mask=mask,
            is_causal=mask is None,
            scale=layer.block.self_attn.scaling,
            enable_gqa=turned.shape[1] != 2 * key_heads,
        )
        return out.transpose(1, 2).reshape(prompts, width, -1)

    def keep(self, rows: torch.Tensor) -> None:
        for layer in self._layers:
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]
        self._lengths_R = self._lengths_R[rows]
        self._mask_RW = self._mask_RW[rows]

    def _allocate(self, made: torch.Tensor) -> torch.Tensor:
        """Return the prompts' keys or values, `repeat` times, with space for all new tokens."""
        prompts, heads, width, size = made.shape
        wide = made.new_zeros(prompts, self._repeat, heads, self._mask_RW.shape[1], size)
        wide[:, :, :, :width] = made[:, None]
        return wide.flatten(0, 1)


def small_layer(block: Any) -> SmallLayer:
    """Return one layer of a small Llama or Qwen2, without a cache yet."""
    attention, mlp = block.self_attn, block.mlp
    qkv = [attention.q_proj, attention.k_proj, attention.v_proj]
    gate_up = [mlp.gate_proj, mlp.up_proj]
    return SmallLayer(
        block=block,
        qkv=torch.cat([part.weight for part in qkv]),
        qkv_bias=_biases(qkv),
        gate_up=torch.cat([part.weight for part in gate_up]),
        gate_up_bias=_biases(gate_up),
        key_heads=attention.k_proj.out_features // attention.head_dim,
        keys=attention.k_proj.weight[:0],
        values=attention.k_proj.weight[:0],
    )


def _attend(
    layer: SmallLayer,
    normed_RH: torch.Tensor,
    cos_R1D: torch.Tensor,
    sin_R1D: torch.Tensor,
    mask: torch.Tensor | None,
    column: int,
) -> torch.Tensor:
    """Return attention of each row's newest token over its past and itself."""
    rows, key_heads, _, size = layer.keys.shape
    heads = functional.linear(normed_RH, layer.qkv, layer.qkv_bias).view(rows, -1, size)
    turned = rotated(heads[:, :-key_heads], cos_R1D, sin_R1D)
    layer.keys[:, :, column] = turned[:, -key_heads:]
    layer.values[:, :, column] = heads[:, -key_heads:]
    out = functional.scaled_dot_product_attention(
        turned[:, :-key_heads, None],
        layer.keys[:, :, : column + 1],
        layer.values[:, :, : column + 1],
        attn_mask=mask,
        scale=layer.block.self_attn.scaling,
        enable_gqa=turned.shape[1] != 2 * key_heads,
    )
    return out.reshape(rows, -1)


def rotary_tables(body: Any, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines of the first positions, [W, D] each, for `rotated`."""
    weight = body.embed_tokens.weight
    cos_1WD, sin_1WD = body.rotary_emb(weight, torch.arange(columns, device=weight.device)[None])
    # rotate_half(x) · sin is x rolled by half a head · sin with its first half negated.
    half = cos_1WD.shape[-1] // 2
    return cos_1WD[0], torch.cat([-sin_1WD[0, :, :half], sin_1WD[0, :, half:]], dim=-1)


def rotated(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return queries and keys with rotary position embedding applied."""
    return heads * cos + heads.roll(heads.shape[-1] // 2, -1) * sin


def after_attention(
    layer: SmallLayer, hidden: torch.Tensor, attended: torch.Tensor
) -> torch.Tensor:
    """Return the layer's output: output projection, residual connections and MLP."""
    hidden = hidden + layer.block.self_attn.o_proj(attended)
    normed = rms_norm(hidden, layer.block.post_attention_layernorm)
    gate, up = functional.linear(normed, layer.gate_up, layer.gate_up_bias).chunk(2, -1)
    return hidden + layer.block.mlp.down_proj(functional.silu(gate) * up)


def rms_norm(hidden_RH: torch.Tensor, norm: Any) -> torch.Tensor:
    """Return Llama's RMS norm."""
    return functional.rms_norm(hidden_RH, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _biases(parts: list[Any]) -> torch.Tensor | None:
    """Return the concatenated biases of layers; None if they have none."""
    return None if parts[0].bias is None else torch.cat([part.bias for part in parts])

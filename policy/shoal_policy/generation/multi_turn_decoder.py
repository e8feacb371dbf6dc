"""Decodes rows that keep their keys and values across turns: one token per row, or many at once.

    prompts ──▶ prefill, each once ──repeat──▶ rows
    a step   ──▶ one token for each sampling row, all observed tokens for rows that got a reply
                 └ one sequence without padding through the model; attention is per row

A row's tokens occupy its first columns. A row that is idle in a step computes a token whose column
is overwritten later.

Shapes: P prompts, R rows, W columns, K key heads, G query heads of each, M tokens of one pass,
B rows with several tokens, T most of these, D head size, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from shoal_policy.generation.decoding import (
    after_attention,
    is_small_llama,
    rms_norm,
    rotary_tables,
    rotated,
    small_layer,
)
from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import can_pack, packing, sequence_hidden


def can_keep_cache(policy: Policy) -> bool:
    """Return whether this policy's rows can keep their cache up to its last position.

    Its attention must be replaceable and without a window: `can_pack` tests that.
    """
    if is_small_llama(policy):
        return True
    return policy.linear_head and can_pack(policy.model, policy.device, policy.max_positions)


class MultiTurnDecoder:
    """One batch with `repeat` rows per prompt. Call it without gradients."""

    def __init__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], repeat: int, max_new: int
    ) -> None:
        """Allocate `max_new` tokens per row at the start, and again whenever they are full."""
        self._policy, self._prompts, self._repeat = policy, prompts, repeat
        self._max_new = max_new
        self._body = _SmallBody(policy) if is_small_llama(policy) else _AnyBody(policy)
        self._longest = max(map(len, prompts))
        self._columns = self._longest + max_new
        self._lengths_R = torch.zeros(len(prompts), dtype=torch.long, device=policy.device)
        self._caches: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def prefill(self) -> torch.Tensor:
        """Run the prompts; return logits [R, V] of each row's first new token."""
        none_R = torch.zeros_like(self._lengths_R)
        logits_PV = self.step(none_R, none_R.bool(), dict(enumerate(self._prompts)))
        for layer, (keys, values) in self._caches.items():
            self._caches[layer] = (
                keys.repeat_interleave(self._repeat, dim=0),
                values.repeat_interleave(self._repeat, dim=0),
            )
        self._lengths_R = self._lengths_R.repeat_interleave(self._repeat)
        return logits_PV.repeat_interleave(self._repeat, dim=0)

    def step(
        self, ids_R: torch.Tensor, sampling_R: torch.Tensor, observed: Mapping[int, Sequence[int]]
    ) -> torch.Tensor:
        """Append one token to each sampling row, and the observed tokens to other rows.

        No row does both. Returns logits [R, V] of the next token; for idle rows they are
        meaningless.
        """
        any_sampling = len(observed) < len(ids_R)
        now = _Pass(self._lengths_R, observed, any_sampling)
        self._longest = max(self._longest + any_sampling, now.longest)
        self._grow()
        attention = _Attention(now, self._caches, self._columns, self._longest)
        hidden_MH = self._body.hidden(now.tokens(ids_R), now.positions_M, attention)
        hidden_RH = now.last(hidden_MH)
        self._lengths_R = torch.where(sampling_R, self._lengths_R + 1, now.ends_R)
        logits_RV: torch.Tensor = self._policy.model.get_output_embeddings()(hidden_RH)
        return logits_RV

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows except these."""
        for layer, (keys, values) in self._caches.items():
            self._caches[layer] = (keys[rows], values[rows])
        self._lengths_R = self._lengths_R[rows]

    def _grow(self) -> None:
        if self._longest <= self._columns:
            return
        # Each growth copies the cache, so it adds space for a whole message.
        before, self._columns = self._columns, self._longest + self._max_new
        more = (0, 0, 0, self._columns - before)
        for layer, (keys, values) in self._caches.items():
            self._caches[layer] = (functional.pad(keys, more), functional.pad(values, more))


class _Pass:
    """The tokens of one step: one per row if any row samples, then all observed tokens."""

    def __init__(
        self, lengths_R: torch.Tensor, observed: Mapping[int, Sequence[int]], sampling: bool
    ) -> None:
        device = lengths_R.device
        self.lengths_R = lengths_R
        self.num_single = len(lengths_R) if sampling else 0
        self.longest = 0
        self.ends_R = lengths_R
        self.rows_B: torch.Tensor | None = None
        self.positions_BT = lengths_R[:0, None]
        rows_M = torch.arange(self.num_single, device=device)
        positions_M = lengths_R[: self.num_single]
        if observed:
            sizes = [len(ids) for ids in observed.values()]
            self.rows_B = torch.tensor(list(observed), device=device)
            self._observed = torch.tensor(
                [one for ids in observed.values() for one in ids], device=device
            )
            sizes_B = torch.tensor(sizes, device=device)
            most = max(sizes)
            places_T = torch.arange(most, device=device)
            firsts_B = sizes_B.cumsum(0) - sizes_B
            starts_B = lengths_R[self.rows_B]
            # Shorter rows are padded with their last token; those results are ignored.
            self.pad_BT = firsts_B[:, None] + torch.minimum(places_T, sizes_B[:, None] - 1)
            self.back = (places_T < sizes_B[:, None]).flatten().nonzero()[:, 0]
            self.positions_BT = starts_B[:, None] + places_T
            rows_M = torch.cat([rows_M, self.rows_B.repeat_interleave(sizes_B)])
            positions_M = torch.cat([positions_M, self.positions_BT.flatten()[self.back]])
            self._last_B = self.num_single + firsts_B + sizes_B - 1
            self.ends_R = lengths_R.index_copy(0, self.rows_B, starts_B + sizes_B)
            self.longest = int(self.ends_R.max())
        self.rows_M, self.positions_M = rows_M, positions_M

    def tokens(self, ids_R: torch.Tensor) -> torch.Tensor:
        single = ids_R[: self.num_single]
        return single if self.rows_B is None else torch.cat([single, self._observed])

    def last(self, hidden_MH: torch.Tensor) -> torch.Tensor:
        """Return the hidden states of each row's last token; zeros for rows without any."""
        if self.rows_B is None:
            return hidden_MH
        single = hidden_MH[: self.num_single]
        if not self.num_single:
            single = hidden_MH.new_zeros(len(self.lengths_R), hidden_MH.shape[1])
        return single.index_copy(0, self.rows_B, hidden_MH[self._last_B])


class _Attention:
    """Attention of each token in a pass over its row's past."""

    def __init__(
        self,
        now: _Pass,
        caches: dict[int, tuple[torch.Tensor, torch.Tensor]],
        columns: int,
        longest: int,
    ) -> None:
        """`caches` have `columns` columns; the first `longest` are in use."""
        self._now, self._caches, self.columns, self._longest = now, caches, columns, longest
        places_W = torch.arange(longest, device=now.lengths_R.device)
        self._single_R11W = (places_W <= now.lengths_R[:, None])[:, None, None]
        self._observed_B1TW = (places_W <= now.positions_BT[..., None])[:, None]

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float | None,
    ) -> torch.Tensor:
        """Return attention over each row's past and the token itself; see `Attend`."""
        keys_RKWD, values_RKWD = self._cache(layer, key)
        now = self._now
        # Sampling rows first: rows with observations have a dummy token there, overwritten next.
        for part in (slice(0, now.num_single), slice(now.num_single, None)):
            rows, columns = now.rows_M[part], now.positions_M[part]
            keys_RKWD[rows, :, columns] = key[0, :, part].transpose(0, 1)
            values_RKWD[rows, :, columns] = value[0, :, part].transpose(0, 1)
        # The query heads of a key head become queries of one head, so no key is copied.
        query_MKGD = query[0].transpose(0, 1).unflatten(1, (keys_RKWD.shape[1], -1))
        used = slice(0, self._longest)
        found = []
        if now.num_single:
            out_RKGD = functional.scaled_dot_product_attention(
                query_MKGD[: now.num_single],
                keys_RKWD[:, :, used],
                values_RKWD[:, :, used],
                attn_mask=self._single_R11W,
                scale=scale,
            )
            found.append(out_RKGD.flatten(1, 2))
        if now.rows_B is not None:
            query_BTKGD = query_MKGD[now.num_single :][now.pad_BT]  # [B, T, K, G, D]
            groups = query_BTKGD.shape[3]
            out = functional.scaled_dot_product_attention(
                query_BTKGD.permute(0, 2, 3, 1, 4).flatten(2, 3),
                keys_RKWD[now.rows_B, :, used],
                values_RKWD[now.rows_B, :, used],
                attn_mask=self._observed_B1TW.repeat(1, 1, groups, 1),
                scale=scale,
            )
            out_BTKGD = out.unflatten(2, (groups, -1)).permute(0, 3, 1, 2, 4)
            found.append(out_BTKGD.flatten(2, 3).flatten(0, 1)[now.back])
        return torch.cat(found)[None]

    def _cache(self, layer: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if layer not in self._caches:
            shape = (len(self._now.lengths_R), like.shape[1], self.columns, like.shape[3])
            self._caches[layer] = (like.new_zeros(shape), like.new_zeros(shape))
        return self._caches[layer]


class _AnyBody:
    """A transformers model whose attention can be replaced."""

    def __init__(self, policy: Policy) -> None:
        self._model = policy.model

    def hidden(self, ids_M: torch.Tensor, positions_M: torch.Tensor, layout: _Attention) -> Any:
        """Return last hidden states, [M, H]."""
        with packing(self._model):
            return sequence_hidden(self._model, ids_M[None], positions_M[None], layout.attend)


class _SmallBody:
    """A small Llama or Qwen2, with fused operations as in `SmallDecoder`."""

    def __init__(self, policy: Policy) -> None:
        self._body = policy.model.model
        self._layers = [small_layer(block) for block in self._body.layers]
        self._tables = rotary_tables(self._body, 1)

    def hidden(self, ids_M: torch.Tensor, positions_M: torch.Tensor, layout: _Attention) -> Any:
        """Return last hidden states, [M, H]."""
        if len(self._tables[0]) < layout.columns:
            self._tables = rotary_tables(self._body, layout.columns)
        cos_M1D, sin_M1D = (table[positions_M, None] for table in self._tables)
        hidden_MH = functional.embedding(ids_M, self._body.embed_tokens.weight)
        for number, layer in enumerate(self._layers):
            normed_MH = rms_norm(hidden_MH, layer.block.input_layernorm)
            heads = functional.linear(normed_MH, layer.qkv, layer.qkv_bias)
            heads = heads.view(len(ids_M), -1, layer.block.self_attn.head_dim)
            parts = rotated(heads[:, : -layer.key_heads], cos_M1D, sin_M1D)
            attended = layout.attend(
                number,
                parts[:, : -layer.key_heads].transpose(0, 1)[None],
                parts[:, -layer.key_heads :].transpose(0, 1)[None],
                heads[:, -layer.key_heads :].transpose(0, 1)[None],
                layer.block.self_attn.scaling,
            )
            hidden_MH = after_attention(layer, hidden_MH, attended[0].flatten(1))
        return rms_norm(hidden_MH, self._body.norm)

"""Rows that hold their keys and values while they grow unevenly: one token a row, or many at once.

    prompts ──▶ prefill, each once ──repeat──▶ rows
    a step   ──▶ one token of each row that speaks, and all new tokens of each that was answered
                 └ one sequence without padding through the model; attention is by rows

A row's tokens stand in its first columns. A row that takes no part in a step computes a token for
nothing, and its place is written over later.

Shapes: P prompts, R rows, W columns, K key heads, G query heads of each, M tokens of one pass,
B rows that take several tokens, T most of these, D head size, H hidden size, V vocabulary.
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
from shoal_policy.model.packed import can_pack, laid_out_hidden, packing


def can_hold(policy: Policy) -> bool:
    """Return whether rows of this policy can be held, up to its last position.

    Its attention must be replaceable, without a window: `can_pack` compares.
    """
    if is_small_llama(policy):
        return True
    return policy.linear_head and can_pack(policy.model, policy.device, policy.max_positions)


class MultiTurnDecoder:
    """One batch: `repeat` rows for each prompt. Call it without gradients."""

    def __init__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], repeat: int, max_new: int
    ) -> None:
        """`max_new` tokens of each row have room from the start, and again when that is full."""
        self._policy, self._prompts, self._repeat = policy, prompts, repeat
        self._max_new = max_new
        self._body = _SmallBody(policy) if is_small_llama(policy) else _AnyBody(policy)
        self._longest = max(map(len, prompts))
        self._columns = self._longest + max_new
        self._lengths_R = torch.zeros(len(prompts), dtype=torch.long, device=policy.device)
        self._caches: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def prefill(self) -> torch.Tensor:
        """Run the prompts; logits [R, V] of each row's first new token."""
        everyone = torch.zeros_like(self._lengths_R)
        logits_PV = self.step(everyone, everyone.bool(), dict(enumerate(self._prompts)))
        for layer, (keys, values) in self._caches.items():
            self._caches[layer] = (
                keys.repeat_interleave(self._repeat, dim=0),
                values.repeat_interleave(self._repeat, dim=0),
            )
        self._lengths_R = self._lengths_R.repeat_interleave(self._repeat)
        return logits_PV.repeat_interleave(self._repeat, dim=0)

    def step(
        self, ids_R: torch.Tensor, speaking_R: torch.Tensor, heard: Mapping[int, Sequence[int]]
    ) -> torch.Tensor:
        """Append one token to each row that speaks, and to others all that they heard.

        No row does both. Returns logits [R, V] of the next token; of rows that do neither they
        mean nothing.
        """
        is_anybody_speaking = len(heard) < len(ids_R)
        now = _Pass(self._lengths_R, heard, is_anybody_speaking)
        self._longest = max(self._longest + is_anybody_speaking, now.longest)
        self._make_room()
        attention = _Attention(now, self._caches, self._columns, self._longest)
        hidden_MH = self._body.hidden(now.tokens(ids_R), now.positions_M, attention)
        hidden_RH = now.last(hidden_MH)
        self._lengths_R = torch.where(speaking_R, self._lengths_R + 1, now.ends_R)
        logits_RV: torch.Tensor = self._policy.model.get_output_embeddings()(hidden_RH)
        return logits_RV

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows but these."""
        for layer, (keys, values) in self._caches.items():
            self._caches[layer] = (keys[rows], values[rows])
        self._lengths_R = self._lengths_R[rows]

    def _make_room(self) -> None:
        if self._longest <= self._columns:
            return
        # Each growth copies the cache: there is room for a whole message more.
        before, self._columns = self._columns, self._longest + self._max_new
        more = (0, 0, 0, self._columns - before)
        for layer, (keys, values) in self._caches.items():
            self._caches[layer] = (functional.pad(keys, more), functional.pad(values, more))


class _Pass:
    """The tokens of one step: one of every row where any speaks, then all that rows heard."""

    def __init__(
        self, lengths_R: torch.Tensor, heard: Mapping[int, Sequence[int]], speaking: bool
    ) -> None:
        device = lengths_R.device
        self.lengths_R = lengths_R
        self.num_single = len(lengths_R) if speaking else 0
        self.longest = 0
        self.ends_R = lengths_R
        self.rows_B: torch.Tensor | None = None
        self.positions_BT = lengths_R[:0, None]
        rows_M = torch.arange(self.num_single, device=device)
        positions_M = lengths_R[: self.num_single]
        if heard:
            sizes = [len(ids) for ids in heard.values()]
            self.rows_B = torch.tensor(list(heard), device=device)
            self._heard = torch.tensor(
                [one for ids in heard.values() for one in ids], device=device
            )
            sizes_B = torch.tensor(sizes, device=device)
            most = max(sizes)
            places_T = torch.arange(most, device=device)
            firsts_B = sizes_B.cumsum(0) - sizes_B
            starts_B = lengths_R[self.rows_B]
            # What is too short repeats its last token, whose result is not taken.
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
        return single if self.rows_B is None else torch.cat([single, self._heard])

    def last(self, hidden_MH: torch.Tensor) -> torch.Tensor:
        """The hidden states of each row's last token; zeros of rows without any."""
        if self.rows_B is None:
            return hidden_MH
        single = hidden_MH[: self.num_single]
        if not self.num_single:
            single = hidden_MH.new_zeros(len(self.lengths_R), hidden_MH.shape[1])
        return single.index_copy(0, self.rows_B, hidden_MH[self._last_B])


class _Attention:
    """A layout: each token of a pass over its row's past."""

    def __init__(
        self,
        now: _Pass,
        caches: dict[int, tuple[torch.Tensor, torch.Tensor]],
        columns: int,
        longest: int,
    ) -> None:
        """`caches` have so many columns, of which the first `longest` are in use."""
        self._now, self._caches, self.columns, self._longest = now, caches, columns, longest
        places_W = torch.arange(longest, device=now.lengths_R.device)
        self._single_R11W = (places_W <= now.lengths_R[:, None])[:, None, None]
        self._heard_B1TW = (places_W <= now.positions_BT[..., None])[:, None]

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float | None,
    ) -> torch.Tensor:
        """Each token over its row's past, itself included; see `Attend`."""
        keys_RKWD, values_RKWD = self._cache(layer, key)
        now = self._now
        # First those who speak: who hears has a token for nothing among them, to be written over.
        for part in (slice(0, now.num_single), slice(now.num_single, None)):
            rows, columns = now.rows_M[part], now.positions_M[part]
            keys_RKWD[rows, :, columns] = key[0, :, part].transpose(0, 1)
            values_RKWD[rows, :, columns] = value[0, :, part].transpose(0, 1)
        # A key head's queries as so many queries of one head: no key is copied for them.
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
            asked = query_MKGD[now.num_single :][now.pad_BT]  # [B, T, K, G, D]
            groups = asked.shape[3]
            out = functional.scaled_dot_product_attention(
                asked.permute(0, 2, 3, 1, 4).flatten(2, 3),
                keys_RKWD[now.rows_B, :, used],
                values_RKWD[now.rows_B, :, used],
                attn_mask=self._heard_B1TW.repeat(1, 1, groups, 1),
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
    """A model of transformers whose attention can be replaced."""

    def __init__(self, policy: Policy) -> None:
        self._model = policy.model

    def hidden(self, ids_M: torch.Tensor, positions_M: torch.Tensor, layout: _Attention) -> Any:
        """Last hidden states, [M, H]."""
        with packing(self._model):
            return laid_out_hidden(self._model, ids_M[None], positions_M[None], layout.attend)


class _SmallBody:
    """A small Llama or Qwen2, written out as `SmallDecoder` is."""

    def __init__(self, policy: Policy) -> None:
        self._body = policy.model.model
        self._layers = [small_layer(block) for block in self._body.layers]
        self._tables = rotary_tables(self._body, 1)

    def hidden(self, ids_M: torch.Tensor, positions_M: torch.Tensor, layout: _Attention) -> Any:
        """Last hidden states, [M, H]."""
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

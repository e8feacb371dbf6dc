"""Decoding where prompts begin alike: what a family's prompts share is computed and held once.

    prefix (a family)  ──┐  keys and values once, for all rows; kept while the weights stay
    rest (a prompt)    ──┼─▶ one long sequence without padding
    token (a row)      ──┘  sees its prefix and its own past, each by itself, and joins the two

Attention over the two parts is joined by their log-sum-exp: softmax over both is the softmax of
each, weighed by what it sums up to (FlashAttention, arXiv 2205.14135, section 3.1; over shared
prefixes arXiv 2402.05099).

Shapes: P prompts, R living rows, F families, K key heads, G query heads of each, W columns of a
row's own cache, S tokens of a prefix, M tokens of the sequence, D head size, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional
from transformers.integrations.sdpa_attention import repeat_kv

from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import can_pack, laid_out_hidden, packing
from shoal_policy.model.prefix_cache import Cache, Prefix, held_for


def can_share(policy: Policy, prompts: Sequence[Sequence[int]], max_new: int) -> list[int] | None:
    """How many tokens each prompt shares with its family; None where the decoder cannot be used."""
    shared = [policy.shots.num_shared(prompt) for prompt in prompts]
    if not any(shared) or not policy.linear_head:
        return None
    longest = max(map(len, prompts)) + max_new
    return shared if can_pack(policy.model, policy.device, longest) else None


class PrefixDecoder:
    """One batch: `repeat` rows for each prompt. Call it without gradients."""

    def __init__(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        shared: Sequence[int],
        repeat: int,
        max_new: int,
    ) -> None:
        """`shared` is how many tokens of each prompt are its family's."""
        self._policy, self._repeat = policy, repeat
        self._prompts = [tuple(prompt) for prompt in prompts]
        self._shared = list(shared)
        self._families = sorted(
            {prompt[:size] for prompt, size in zip(self._prompts, shared, strict=True)}
        )
        device = policy.device
        family = [
            self._families.index(prompt[:size])
            for prompt, size in zip(self._prompts, shared, strict=True)
        ]
        rests = [len(prompt) - size for prompt, size in zip(self._prompts, shared, strict=True)]
        self._width, self._columns = max(rests), max(rests) + max_new

        def of_rows(values: Sequence[int]) -> torch.Tensor:
            return torch.tensor(values, device=device).repeat_interleave(repeat)

        self._family_R = of_rows(family)
        self._lengths_R = of_rows(list(map(len, self._prompts)))
        places_W = torch.arange(self._columns, device=device)
        self._mask_RW = places_W >= (self._width - of_rows(rests))[:, None]
        self._prefixes: list[Cache] = []
        self._own: Cache = {}
        self._column = 0
        self._rows_of_family: list[torch.Tensor] = []
        self.windows: set[int] = set()

    def prefill(self) -> torch.Tensor:
        """Run what prompts do not share; logits [R, V] of each row's first new token."""
        with packing(self._policy.model):
            held = _computed(self._policy, [one for one in self._families if one])
            self._prefixes = [held.get(one, {}) for one in self._families]
            rests = _Rests(self._prompts, self._shared, held, self._policy.device)
            hidden_MH = laid_out_hidden(self._policy.model, rests.ids, rests.positions, rests)
        for layer, (keys, values) in rests.cache.items():
            self._own[layer] = (self._room(keys, rests), self._room(values, rests))
        self._deal_rows()
        logits_PV = self._policy.model.get_output_embeddings()(hidden_MH[rests.last_P])
        return logits_PV.repeat_interleave(self._repeat, dim=0)

    def step(self, ids_R: torch.Tensor, step: int) -> torch.Tensor:
        """Append the `step`-th new token (from 0) of each row; logits [R, V] of the next."""
        self._column = self._width + step
        model = self._policy.model
        with packing(model):
            positions_1R = (self._lengths_R + step)[None]
            hidden_RH = laid_out_hidden(model, ids_R[None], positions_1R, self)
        logits_RV: torch.Tensor = model.get_output_embeddings()(hidden_RH)
        return logits_RV

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows but these (indices into the living ones)."""
        for layer, (keys, values) in self._own.items():
            self._own[layer] = (keys[rows], values[rows])
        self._family_R, self._lengths_R = self._family_R[rows], self._lengths_R[rows]
        self._mask_RW = self._mask_RW[rows]
        self._deal_rows()

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float | None,
    ) -> torch.Tensor:
        """Each row's newest token over its prefix and its own past; see `Layout`."""
        keys_RKWD, values_RKWD = self._own[layer]
        keys_RKWD[:, :, self._column] = key[0].transpose(0, 1)
        values_RKWD[:, :, self._column] = value[0].transpose(0, 1)
        used = slice(0, self._column + 1)
        size = query.shape[-1]
        query_RKGD = query[0].transpose(0, 1).unflatten(1, (keys_RKWD.shape[1], -1))
        query_RKGD = query_RKGD * (size**-0.5 if scale is None else scale)
        scores = query_RKGD @ keys_RKWD[:, :, used].transpose(-1, -2)
        scores = scores.float().masked_fill(~self._mask_RW[:, None, None, used], -torch.inf)
        out_RKGD, sums_RKG = _weighed(scores, values_RKWD[:, :, used])
        for cache, rows in zip(self._prefixes, self._rows_of_family, strict=True):
            if cache and len(rows):
                keys_KSD, values_KSD = cache[layer]
                asked = query_RKGD[rows].transpose(0, 1)  # [K, n, G, D]
                found, sums = _weighed(
                    (asked.flatten(1, 2) @ keys_KSD.transpose(-1, -2)).float(), values_KSD
                )
                found = found.unflatten(1, asked.shape[1:3]).transpose(0, 1)
                sums = sums.unflatten(1, asked.shape[1:3]).transpose(0, 1)
                share = torch.sigmoid(sums - sums_RKG[rows])[..., None].to(found.dtype)
                out_RKGD[rows] = share * found + (1 - share) * out_RKGD[rows]
        return out_RKGD.flatten(1, 2)[None]

    def _deal_rows(self) -> None:
        self._rows_of_family = [
            (self._family_R == number).nonzero()[:, 0] for number in range(len(self._families))
        ]

    def _room(self, made_KMD: torch.Tensor, rests: _Rests) -> torch.Tensor:
        """Each row's own keys or values, right-aligned, with room for every new token."""
        heads, _, size = made_KMD.shape
        wide = made_KMD.new_zeros(len(self._prompts), heads, self._columns, size)
        for place, (first, end) in enumerate(rests.spans):
            wide[place, :, self._width - (end - first) : self._width] = made_KMD[:, first:end]
        return wide.repeat_interleave(self._repeat, dim=0)


def _weighed(scores: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values weighed by softmax of float32 scores, and the scores' log-sum-exp."""
    sums = scores.logsumexp(-1)
    return (scores - sums[..., None]).exp().to(values.dtype) @ values, sums


class _Rests:
    """A layout: what prompts have beyond their prefixes, family by family."""

    def __init__(
        self,
        prompts: Sequence[Prefix],
        shared: Sequence[int],
        held: dict[Prefix, Cache],
        device: torch.device,
    ) -> None:
        self.windows: set[int] = set()
        self.cache: Cache = {}
        self.spans: list[tuple[int, int]] = [(0, 0)] * len(prompts)
        """Return where each prompt's rest is in the sequence."""
        self._groups: list[tuple[int, int, Cache | None, torch.Tensor | None]] = []
        ids: list[int] = []
        positions: list[int] = []
        members: dict[Any, list[int]] = {}
        for place, (prompt, size) in enumerate(zip(prompts, shared, strict=True)):
            # One without a prefix sees nobody else's: it is a family of its own.
            members.setdefault(prompt[:size] if size else place, []).append(place)
        for prefix, places in members.items():
            first = len(ids)
            for place in places:
                rest = prompts[place][shared[place] :]
                self.spans[place] = (len(ids), len(ids) + len(rest))
                ids.extend(rest)
                positions.extend(range(shared[place], shared[place] + len(rest)))
            cache = held[prefix] if isinstance(prefix, tuple) else None
            sizes = [len(prompts[place]) - shared[place] for place in places]
            mask = None if cache is None else _family_mask(shared[places[0]], sizes).to(device)
            self._groups.append((first, len(ids), cache, mask))
        self.ids = torch.tensor([ids], device=device)
        self.positions = torch.tensor([positions], device=device)
        self.last_P = torch.tensor([end - 1 for _, end in self.spans], device=device)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float | None,
    ) -> torch.Tensor:
        """See `Layout`."""
        self.cache[layer] = (key[0], value[0])
        groups = query.shape[1] // key.shape[1]
        found = []
        for first, end, cache, mask in self._groups:
            own = slice(first, end)
            keys, values = key[:, :, own], value[:, :, own]
            if cache is not None:
                keys = torch.cat([cache[layer][0][None], keys], dim=2)
                values = torch.cat([cache[layer][1][None], values], dim=2)
            out = functional.scaled_dot_product_attention(
                query[:, :, own],
                repeat_kv(keys, groups),
                repeat_kv(values, groups),
                attn_mask=mask,
                is_causal=mask is None,
                scale=scale,
            )
            found.append(out)
        return torch.cat(found, dim=2).transpose(1, 2)


def _family_mask(num_shared: int, sizes: Sequence[int]) -> torch.Tensor:
    """All see the prefix; of the rests after it, each token sees its own one up to itself."""
    rests = torch.block_diag(*(torch.ones(size, size).tril() for size in sizes)).bool()
    return torch.cat([rests.new_ones(len(rests), num_shared), rests], dim=1)


def _computed(policy: Policy, wanted: Sequence[Prefix]) -> dict[Prefix, Cache]:
    """Keys and values of prefixes: those at hand if the weights have not changed, else anew."""
    held = held_for(policy.model)
    found = {one: held.prefixes[one] for one in wanted if one in held.prefixes}
    missing = [one for one in wanted if one not in found]
    if missing:
        layout = _Rests(missing, [0] * len(missing), {}, policy.device)
        laid_out_hidden(policy.model, layout.ids, layout.positions, layout)
        for prefix, (first, end) in zip(missing, layout.spans, strict=True):
            found[prefix] = {
                layer: (keys[:, first:end].clone(), values[:, first:end].clone())
                for layer, (keys, values) in layout.cache.items()
            }
            held.add(prefix, found[prefix])
    return found

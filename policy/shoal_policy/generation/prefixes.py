"""Decoding where prompts begin alike: what a family's prompts share is computed and held once.

    prefix (a family)  ──┐  keys and values once, for all rows; kept while the weights stay
    rest (a prompt)    ──┼─▶ one long sequence without padding
    token (a row)      ──┘  sees its prefix and its own past, each by itself, and joins the two

Attention over the two parts is joined by their log-sum-exp: softmax over both is the softmax of
each, weighed by what it sums up to (FlashAttention, arXiv 2205.14135, section 3.1; over shared
prefixes arXiv 2402.05099).

All prefixes are one padded batch, so that a token starts as many operations whatever their number.

Shapes: P prompts, R living rows, F families, N rows of the largest, K key heads, G query heads of
each, W columns of a row's own cache, S tokens of the longest prefix, M tokens of the sequence, D
head size, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.nn import functional
from transformers.integrations.sdpa_attention import repeat_kv

from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import can_pack, laid_out_hidden, packing
from shoal_policy.model.prefix_cache import Cache, Prefix, held_for

_NONE: Final = -1
"""The family of a row that shares no beginning."""


def can_share(policy: Policy, prompts: Sequence[Sequence[int]], max_new: int) -> list[int] | None:
    """Return how many tokens each prompt shares with its family; None where that cannot be used."""
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
        begun = [prompt[:size] for prompt, size in zip(self._prompts, shared, strict=True)]
        self._families = sorted({one for one in begun if one})
        device = policy.device
        family = [self._families.index(one) if one else _NONE for one in begun]
        rests = [len(prompt) - size for prompt, size in zip(self._prompts, shared, strict=True)]
        self._width, self._columns = max(rests), max(rests) + max_new

        def of_rows(values: Sequence[int]) -> torch.Tensor:
            return torch.tensor(values, device=device).repeat_interleave(repeat)

        self._family_R = of_rows(family)
        self._lengths_R = of_rows(list(map(len, self._prompts)))
        places_W = torch.arange(self._columns, device=device)
        self._padding_RW = places_W < (self._width - of_rows(rests))[:, None]
        self._last_position = policy.max_positions - 1
        self._prefixes: Cache = {}
        self._dealt = self._deal([one for one in family for _ in range(repeat)])
        self._own: Cache = {}
        self._column = 0
        self.windows: set[float] = set()

    def prefill(self) -> torch.Tensor:
        """Run what prompts do not share; logits [R, V] of each row's first new token."""
        with packing(self._policy.model):
            held = _computed(self._policy, self._families)
            self._prefixes = self._padded([held[one] for one in self._families])
            rests = _Rests(self._prompts, self._shared, held, self._policy.device)
            hidden_MH = laid_out_hidden(self._policy.model, rests.ids, rests.positions, rests)
        for layer, (keys, values) in rests.cache.items():
            self._own[layer] = (self._room(keys, rests), self._room(values, rests))
        logits_PV = self._policy.model.get_output_embeddings()(hidden_MH[rests.last_P])
        return logits_PV.repeat_interleave(self._repeat, dim=0)

    def step(self, ids_R: torch.Tensor, step: int) -> torch.Tensor:
        """Append the `step`-th new token (from 0) of each row; logits [R, V] of the next."""
        self._column = self._width + step
        model = self._policy.model
        with packing(model):
            # A row that has ended may be past the last position before it is dropped.
            positions_1R = (self._lengths_R + step).clamp(max=self._last_position)[None]
            hidden_RH = laid_out_hidden(model, ids_R[None], positions_1R, self)
        logits_RV: torch.Tensor = model.get_output_embeddings()(hidden_RH)
        return logits_RV

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows but these (indices into the living ones)."""
        for layer, (keys, values) in self._own.items():
            self._own[layer] = (keys[rows], values[rows])
        self._family_R, self._lengths_R = self._family_R[rows], self._lengths_R[rows]
        self._padding_RW = self._padding_RW[rows]
        self._dealt = self._deal(self._family_R.tolist())

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
        scores = scores.float().masked_fill(self._padding_RW[:, None, None, used], -torch.inf)
        out_RKGD, sums_RKG = _weighed(scores, values_RKWD[:, :, used])
        keys_FKSD, values_FKSD = self._prefixes[layer]
        asked_FNKGD = query_RKGD[self._dealt.rows_FN]
        asked = asked_FNKGD.transpose(1, 2).flatten(2, 3)  # [F, K, N·G, D]
        scores = (asked @ keys_FKSD.transpose(-1, -2)).float()
        if self._beyond_F11S is not None:
            scores = scores.masked_fill(self._beyond_F11S, -torch.inf)
        found, sums = _weighed(scores, values_FKSD)
        groups = asked_FNKGD.shape[3]
        found_RKGD = self._dealt.back(found.unflatten(2, (-1, groups)))
        gained_RKG = self._dealt.back(sums.unflatten(2, (-1, groups))) - sums_RKG
        if self._dealt.lacks_R is not None:
            gained_RKG = gained_RKG.masked_fill(self._dealt.lacks_R[:, None, None], -torch.inf)
        share_RKG1 = torch.sigmoid(gained_RKG)[..., None].to(found.dtype)
        return torch.lerp(out_RKGD, found_RKGD, share_RKG1).flatten(1, 2)[None]

    def _deal(self, family_R: Sequence[int]) -> _Dealt:
        return _Dealt(family_R, len(self._families), self._policy.device)

    def _padded(self, caches: Sequence[Cache]) -> Cache:
        """All families' keys and values side by side, [F, K, S, D] each, in the computing type."""
        lengths = list(map(len, self._families))
        longest = max(lengths)
        self._beyond_F11S: torch.Tensor | None = None
        if min(lengths) < longest:
            device = self._policy.device
            places_S = torch.arange(longest, device=device)
            lengths_F = torch.tensor(lengths, device=device)
            self._beyond_F11S = (places_S >= lengths_F[:, None])[:, None, None]

        def side_by_side(made: Sequence[torch.Tensor]) -> torch.Tensor:
            wide = [functional.pad(one, (0, 0, 0, longest - one.shape[1])) for one in made]
            return torch.stack(wide).to(self._policy.autocast_dtype or wide[0].dtype)

        return {
            layer: (
                side_by_side([one[layer][0] for one in caches]),
                side_by_side([one[layer][1] for one in caches]),
            )
            for layer in caches[0]
        }

    def _room(self, made_KMD: torch.Tensor, rests: _Rests) -> torch.Tensor:
        """Each row's own keys or values, right-aligned, with room for every new token."""
        heads, _, size = made_KMD.shape
        dtype = self._policy.autocast_dtype or made_KMD.dtype
        wide = made_KMD.new_zeros(len(self._prompts), heads, self._columns, size, dtype=dtype)
        for place, (first, end) in enumerate(rests.spans):
            wide[place, :, self._width - (end - first) : self._width] = made_KMD[:, first:end]
        return wide.repeat_interleave(self._repeat, dim=0)


class _Dealt:
    """The living rows by family, each padded to as many as the largest has."""

    def __init__(self, family_R: Sequence[int], num_families: int, device: torch.device) -> None:
        members: list[list[int]] = [[] for _ in range(num_families)]
        places: list[tuple[int, int]] = []
        for row, family in enumerate(family_R):
            places.append((max(family, 0), len(members[family]) if family >= 0 else 0))
            if family >= 0:
                members[family].append(row)
        most = max(1, *map(len, members))
        padded = [[*rows, *[0] * (most - len(rows))] for rows in members]
        self.rows_FN = torch.tensor(padded, device=device)
        self.lacks_R: torch.Tensor | None = None
        """The rows without a prefix; None where each has one."""
        if min(family_R) < 0:
            self.lacks_R = torch.tensor([one < 0 for one in family_R], device=device)
        self._places_R = torch.tensor([f * most + n for f, n in places], device=device)

    def back(self, found_FKN: torch.Tensor) -> torch.Tensor:
        """Return what was computed family by family, [F, K, N, …], row by row: [R, K, …]."""
        return found_FKN.transpose(1, 2).flatten(0, 1)[self._places_R]


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
        self.windows: set[float] = set()
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

"""Decoding for prompts that begin alike: the common part of a family is computed and stored once.

    prefix (a family)  ──┬─▶ one long sequence without padding: keys and values once, for all rows
    rest (a prompt)    ──┘
    token (a row)      ────  attends to its prefix and to its own past separately, then merges

The two attention results are merged by their log-sum-exp: softmax over both parts is the softmax of
each, weighted by its sum (FlashAttention, arXiv 2205.14135, section 3.1; for shared prefixes arXiv
2402.05099).

All prefixes form one padded batch, so a token needs the same number of operations for any number of
families.

Shapes: P prompts, R active rows, F families, N rows of the largest, K key heads, G query heads of
each, W columns of a row's own cache, S tokens of the longest prefix, M tokens of the sequence, D
head size, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional
from transformers.integrations.sdpa_attention import repeat_kv

from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import can_pack, packing, sequence_hidden

Cache = dict[int, tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer."""
Span = tuple[int, int]
"""A part of a sequence: index of its first token, and the one after its last."""


def can_share(policy: Policy, prompts: Sequence[Sequence[int]], max_new: int) -> list[int] | None:
    """Return how many tokens each prompt shares with its family; None if that cannot be used."""
    shared = [policy.few_shot.num_shared(prompt) for prompt in prompts]
    if not any(shared) or not policy.linear_head:
        return None
    longest = max(map(len, prompts)) + max_new
    return shared if can_pack(policy.model, policy.device, longest) else None


class PrefixDecoder:
    """One batch with `repeat` rows per prompt. Call it without gradients."""

    def __init__(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        shared: Sequence[int],
        repeat: int,
        max_new: int,
    ) -> None:
        """`shared` is the number of leading tokens of each prompt that belong to its family."""
        self._policy, self._repeat = policy, repeat
        self._prompts = [tuple(prompt) for prompt in prompts]
        self._shared = list(shared)
        begun = [prompt[:size] for prompt, size in zip(self._prompts, shared, strict=True)]
        self._families = sorted({one for one in begun if one})
        device = policy.device
        family = [self._families.index(one) if one else None for one in begun]
        rests = [len(prompt) - size for prompt, size in zip(self._prompts, shared, strict=True)]
        self._width, self._columns = max(rests), max(rests) + max_new

        def of_rows(values: Sequence[int]) -> torch.Tensor:
            return torch.tensor(values, device=device).repeat_interleave(repeat)

        self._family_R = [one for one in family for _ in range(repeat)]
        self._lengths_R = of_rows(list(map(len, self._prompts)))
        places_W = torch.arange(self._columns, device=device)
        self._padding_RW = places_W < (self._width - of_rows(rests))[:, None]
        self._last_position = policy.max_positions - 1
        self._prefixes: Cache = {}
        self._by_family = self._group_by_family()
        self._own: Cache = {}
        self._column = 0

    def prefill(self) -> torch.Tensor:
        """Run the prompts, shared parts once; return logits [R, V] of the first new tokens."""
        with packing(self._policy.model):
            layout = _PrefillLayout(self._prompts, self._shared, self._policy.device)
            hidden_MH = sequence_hidden(
                self._policy.model, layout.ids, layout.positions, layout.attend
            )
        spans = [layout.prefixes[one] for one in self._families]
        self._prefix_padding_F11S = self._prefix_padding()
        for layer, (keys, values) in layout.cache.items():
            self._prefixes[layer] = (
                self._side_by_side(keys, spans),
                self._side_by_side(values, spans),
            )
            self._own[layer] = (
                self._allocate(keys, layout.rests),
                self._allocate(values, layout.rests),
            )
        logits_PV = self._policy.model.get_output_embeddings()(hidden_MH[layout.last_P])
        return logits_PV.repeat_interleave(self._repeat, dim=0)

    def step(self, ids_R: torch.Tensor, step: int) -> torch.Tensor:
        """Append the `step`-th new token (from 0) of each row; return logits [R, V] of the next."""
        self._column = self._width + step
        model = self._policy.model
        with packing(model):
            # A finished row may be past the last position until it is dropped.
            positions_1R = (self._lengths_R + step).clamp(max=self._last_position)[None]
            hidden_RH = sequence_hidden(model, ids_R[None], positions_1R, self.attend)
        logits_RV: torch.Tensor = model.get_output_embeddings()(hidden_RH)
        return logits_RV

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows except these (indices into the active ones)."""
        for layer, (keys, values) in self._own.items():
            self._own[layer] = (keys[rows], values[rows])
        self._family_R = [self._family_R[row] for row in rows.tolist()]
        self._lengths_R, self._padding_RW = self._lengths_R[rows], self._padding_RW[rows]
        self._by_family = self._group_by_family()

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float | None,
    ) -> torch.Tensor:
        """Return attention of each row's newest token over prefix and own past; see `Attend`."""
        keys_RKWD, values_RKWD = self._own[layer]
        keys_RKWD[:, :, self._column] = key[0].transpose(0, 1)
        values_RKWD[:, :, self._column] = value[0].transpose(0, 1)
        used = slice(0, self._column + 1)
        size = query.shape[-1]
        query_RKGD = query[0].transpose(0, 1).unflatten(1, (keys_RKWD.shape[1], -1))
        query_RKGD = query_RKGD * (size**-0.5 if scale is None else scale)
        scores = query_RKGD @ keys_RKWD[:, :, used].transpose(-1, -2)
        scores = scores.float().masked_fill(self._padding_RW[:, None, None, used], -torch.inf)
        out_RKGD, sums_RKG = _softmax_values(scores, values_RKWD[:, :, used])
        keys_FKSD, values_FKSD = self._prefixes[layer]
        query_FNKGD = query_RKGD[self._by_family.rows_FN]
        query_FKND = query_FNKGD.transpose(1, 2).flatten(2, 3)  # [F, K, N·G, D]
        scores = (query_FKND @ keys_FKSD.transpose(-1, -2)).float()
        if self._prefix_padding_F11S is not None:
            scores = scores.masked_fill(self._prefix_padding_F11S, -torch.inf)
        found, sums = _softmax_values(scores, values_FKSD)
        groups = query_FNKGD.shape[3]
        found_RKGD = self._by_family.back(found.unflatten(2, (-1, groups)))
        gained_RKG = self._by_family.back(sums.unflatten(2, (-1, groups))) - sums_RKG
        if self._by_family.lacks_R is not None:
            gained_RKG = gained_RKG.masked_fill(self._by_family.lacks_R[:, None, None], -torch.inf)
        share_RKG1 = torch.sigmoid(gained_RKG)[..., None].to(found.dtype)
        return torch.lerp(out_RKGD, found_RKGD, share_RKG1).flatten(1, 2)[None]

    def _group_by_family(self) -> _RowsByFamily:
        return _RowsByFamily(self._family_R, len(self._families), self._policy.device)

    def _prefix_padding(self) -> torch.Tensor | None:
        """Return a mask of columns beyond each family's prefix; None if all are equally long."""
        lengths = list(map(len, self._families))
        if min(lengths) == max(lengths):
            return None
        device = self._policy.device
        lengths_F = torch.tensor(lengths, device=device)
        places_S = torch.arange(max(lengths), device=device)
        return (places_S >= lengths_F[:, None])[:, None, None]

    def _side_by_side(self, made_KMD: torch.Tensor, spans: Sequence[Span]) -> torch.Tensor:
        """Return all families' keys or values, [F, K, S, D], in the compute dtype."""
        longest = max(end - first for first, end in spans)
        wide = [
            functional.pad(made_KMD[:, first:end], (0, 0, 0, longest - (end - first)))
            for first, end in spans
        ]
        return torch.stack(wide).to(self._policy.autocast_dtype or made_KMD.dtype)

    def _allocate(self, made_KMD: torch.Tensor, spans: Sequence[Span]) -> torch.Tensor:
        """Return each row's own keys or values, right-aligned, with space for all new tokens."""
        heads, _, size = made_KMD.shape
        dtype = self._policy.autocast_dtype or made_KMD.dtype
        wide = made_KMD.new_zeros(len(spans), heads, self._columns, size, dtype=dtype)
        for place, (first, end) in enumerate(spans):
            wide[place, :, self._width - (end - first) : self._width] = made_KMD[:, first:end]
        return wide.repeat_interleave(self._repeat, dim=0)


class _RowsByFamily:
    """The active rows by family, each family padded to the size of the largest."""

    def __init__(
        self, family_R: Sequence[int | None], num_families: int, device: torch.device
    ) -> None:
        members: list[list[int]] = [[] for _ in range(num_families)]
        places: list[tuple[int, int]] = []
        for row, family in enumerate(family_R):
            if family is None:
                places.append((0, 0))
            else:
                places.append((family, len(members[family])))
                members[family].append(row)
        most = max(1, *map(len, members))
        padded = [[*rows, *[0] * (most - len(rows))] for rows in members]
        self.rows_FN = torch.tensor(padded, device=device)
        self.lacks_R: torch.Tensor | None = None
        """The rows without a prefix; None if each has one."""
        if None in family_R:
            self.lacks_R = torch.tensor([one is None for one in family_R], device=device)
        self._places_R = torch.tensor([f * most + n for f, n in places], device=device)

    def back(self, found_FKN: torch.Tensor) -> torch.Tensor:
        """Return results by family, [F, K, N, …], as results by row: [R, K, …]."""
        return found_FKN.transpose(1, 2).flatten(0, 1)[self._places_R]


def _softmax_values(
    scores: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values weighted by softmax of float32 scores, and the scores' log-sum-exp."""
    sums = scores.logsumexp(-1)
    return (scores - sums[..., None]).exp().to(values.dtype) @ values, sums


class _PrefillLayout:
    """Prompts as one sequence: per family its shared prefix, then the rest of each prompt."""

    def __init__(
        self, prompts: Sequence[tuple[int, ...]], shared: Sequence[int], device: torch.device
    ) -> None:
        self.cache: Cache = {}
        self.prefixes: dict[tuple[int, ...], Span] = {}
        self.rests: list[Span] = [(0, 0)] * len(prompts)
        self._groups: list[tuple[slice, torch.Tensor | None]] = []
        ids: list[int] = []
        positions: list[int] = []
        members: dict[Any, list[int]] = {}
        for place, (prompt, size) in enumerate(zip(prompts, shared, strict=True)):
            # A prompt without a prefix shares nothing: it is a family of its own.
            members.setdefault(prompt[:size] if size else place, []).append(place)
        for places in members.values():
            first, size = len(ids), shared[places[0]]
            prefix = prompts[places[0]][:size]
            self.prefixes[prefix] = (first, first + size)
            ids.extend(prefix)
            positions.extend(range(size))
            for place in places:
                rest = prompts[place][size:]
                self.rests[place] = (len(ids), len(ids) + len(rest))
                ids.extend(rest)
                positions.extend(range(size, size + len(rest)))
            mask = _family_mask(size, [len(prompts[place]) - size for place in places])
            self._groups.append((slice(first, len(ids)), None if mask is None else mask.to(device)))
        self.ids = torch.tensor([ids], device=device)
        self.positions = torch.tensor([positions], device=device)
        self.last_P = torch.tensor([end - 1 for _, end in self.rests], device=device)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float | None,
    ) -> torch.Tensor:
        """See `Attend`."""
        self.cache[layer] = (key[0], value[0])
        groups = query.shape[1] // key.shape[1]
        found = []
        for own, mask in self._groups:
            out = functional.scaled_dot_product_attention(
                query[:, :, own],
                repeat_kv(key[:, :, own], groups),
                repeat_kv(value[:, :, own], groups),
                attn_mask=mask,
                is_causal=mask is None,
                scale=scale,
            )
            found.append(out)
        return torch.cat(found, dim=2).transpose(1, 2)


def _family_mask(num_shared: int, sizes: Sequence[int]) -> torch.Tensor | None:
    """Return the mask in a family: each token sees the prefix, and its own rest up to itself.

    None if there is only one rest, which sees everything before it.
    """
    if len(sizes) == 1:
        return None
    rests = torch.block_diag(*(torch.ones(size, size).tril() for size in sizes)).bool()
    size = num_shared + len(rests)
    mask = torch.ones(size, size, dtype=torch.bool).tril()
    mask[num_shared:, num_shared:] = rests
    return mask

"""A forward pass without padding in which rows of one prompt compute it once.

    rows      p p p a a │ p p p b │ q q c c c          p, q prompts; a, b, c completions
    packed    p p p a a b q q c c c                    one sequence: every layer but attention
    attention p p p a a / p p p b . / q q c c c        gathered into rows, causal, and back

Everything but attention treats each token by itself, so one long sequence with the right positions
gives the same numbers. Attention is transformers' to replace by name: ours gathers queries, keys
and values into rows, lets torch's own causal attention work on these, and puts the results back.
Gradients of a shared prompt are the sum over its rows, by autograd.

Not every model is made that way: recurrent layers, soft caps, sinks. So the first time a model
comes, a few tokens are computed both ways (`can_pack`); where they differ rows are padded instead.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv

log = logging.getLogger(__name__)

_NAME = "shoal_packed"
_LAYOUT = "shoal_layout"
_REPLACED = "sdpa"
"""torch's own attention, the usual choice; another was asked for on purpose."""
_NO_WINDOW = 1 << 30
_SIMILAR = 0.75
"""Share of the longest row's length that a row must have to be padded to it in attention."""
_UNKNOWN = ("softcap", "s_aux", "position_bias", "cache")
"""What some models ask of attention and ours does not do."""


class TokenRow(Protocol):
    """A prompt and a completion, both not empty."""

    @property
    def prompt_ids(self) -> Sequence[int]: ...
    @property
    def completion_ids(self) -> Sequence[int]: ...


class CannotPackError(Exception):
    """The model asks for another attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Rows as one sequence of M tokens; N completion tokens, row after row as they were given."""

    ids: torch.Tensor
    """[1, M]"""
    positions: torch.Tensor
    """[1, M], of each token in its row."""
    places: torch.Tensor
    """[N], where in the sequence each completion token is predicted."""
    buckets: list[tuple[int, torch.Tensor]]
    """Rows of similar length for attention: how many, and what they gather, [rows·width]."""
    back: torch.Tensor
    """[M], where in the buckets, one after another, each token's result is."""
    windows: set[int]
    """Attention windows that the model asked for, filled in by its forward pass."""


def packed_tokens(rows: Sequence[TokenRow]) -> int:
    """Length of the sequence that these rows pack to."""
    prompts = {tuple(row.prompt_ids) for row in rows}
    return sum(map(len, prompts)) + sum(len(row.completion_ids) - 1 for row in rows)


def pack_rows(rows: Sequence[TokenRow], device: torch.device) -> Packed:
    """Lay out rows; equal prompts become one."""
    ids: list[int] = []
    positions: list[int] = []
    places: list[int] = []
    starts: dict[tuple[int, ...], int] = {}
    tokens: list[list[int]] = []
    for row in rows:
        prompt, size = tuple(row.prompt_ids), len(row.prompt_ids)
        if prompt not in starts:
            starts[prompt] = len(ids)
            ids.extend(prompt)
            positions.extend(range(size))
        # The last token is predicted, never read.
        read = list(row.completion_ids)[:-1]
        of_prompt = range(starts[prompt], starts[prompt] + size)
        of_completion = range(len(ids), len(ids) + len(read))
        ids.extend(read)
        positions.extend(range(size, size + len(read)))
        places.extend([of_prompt[-1], *of_completion])
        tokens.append([*of_prompt, *of_completion])
    back = [0] * len(ids)
    buckets, offset = [], 0
    for members in _similar(tokens):
        width = len(members[0])
        index = [token for one in members for token in one + one[:1] * (width - len(one))]
        for number, member in enumerate(members):
            for place, token in enumerate(member):
                back[token] = offset + number * width + place
        offset += len(index)
        buckets.append((len(members), torch.tensor(index, device=device)))
    return Packed(
        ids=torch.tensor([ids], device=device),
        positions=torch.tensor([positions], device=device),
        places=torch.tensor(places, device=device),
        buckets=buckets,
        back=torch.tensor(back, device=device),
        windows=set(),
    )


def _similar(tokens: list[list[int]]) -> list[list[list[int]]]:
    ordered = sorted(tokens, key=len, reverse=True)
    buckets: list[list[list[int]]] = []
    for row in ordered:
        if buckets and len(row) >= _SIMILAR * len(buckets[-1][0]):
            buckets[-1].append(row)
        else:
            buckets.append([row])
    return buckets


def packed_hidden(model: Any, packed: Packed) -> torch.Tensor:
    """Last hidden states at `places`, [N, H]. Call within `packing`, backward included."""
    body = model.base_model(
        input_ids=packed.ids,
        position_ids=packed.positions,
        use_cache=False,
        **{_LAYOUT: packed},
    )
    hidden: torch.Tensor = body.last_hidden_state[0].index_select(0, packed.places)
    return hidden


@contextlib.contextmanager
def packing(model: Any) -> Iterator[None]:
    """Let the model's attention be ours for calls with a layout, and torch's own for all others."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    if before != _REPLACED:
        yield
        return
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = before


_known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Longest row that a model can pack; 0 for none."""


def can_pack(model: Any, device: torch.device, longest: int) -> bool:
    """Whether packing gives this model's own hidden states for rows of up to `longest` tokens.

    Found out once a model. Within an attention window there is none.
    """
    if model not in _known:
        _known[model] = _probe(model, device)
        log.debug("%s: packs rows up to %d tokens", type(model).__name__, _known[model])
    return longest <= _known[model]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProbeRow:
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]


def _probe(model: Any, device: torch.device) -> int:
    config = model.config.get_text_config()
    if config._attn_implementation != _REPLACED:
        return 0
    ids = [index % config.vocab_size for index in (3, 1, 4, 1, 5, 9, 2, 6)]
    rows = [
        _ProbeRow(prompt_ids=tuple(ids[:3]), completion_ids=tuple(ids[3:7])),
        _ProbeRow(prompt_ids=tuple(ids[:3]), completion_ids=tuple(ids[5:])),
        _ProbeRow(prompt_ids=tuple(ids[4:]), completion_ids=tuple(ids[:2])),
    ]
    with torch.no_grad():
        alone = []
        for row in rows:
            whole = torch.tensor([[*row.prompt_ids, *row.completion_ids[:-1]]], device=device)
            found = model.base_model(input_ids=whole, use_cache=False).last_hidden_state[0]
            alone.append(found[len(row.prompt_ids) - 1 :])
        try:
            packed = pack_rows(rows, device)
            with packing(model):
                packed_NH = packed_hidden(model, packed).float()
        except (CannotPackError, TypeError, ValueError, RuntimeError, IndexError) as error:
            # Models that know no positions, or pass nothing on to attention, say so variously.
            log.debug("%s", error)
            return 0
    expected_NH = torch.cat(alone).float()
    off = float((packed_NH - expected_NH).norm() / expected_NH.norm())
    close = off < (1e-4 if next(model.parameters()).dtype == torch.float32 else 3e-2)
    windows = [*packed.windows, getattr(config, "attention_chunk_size", None) or _NO_WINDOW]
    return min(windows) if close else 0


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """By transformers' signature: [1, heads, M, d] each; returns [1, M, heads, d]."""
    packed: Packed | None = options.get(_LAYOUT)
    if packed is None or any(options.get(name) is not None for name in _UNKNOWN):
        raise CannotPackError("attention asks for more than a causal mask")
    if dropout or attention_mask is not None:
        raise CannotPackError("attention asks for dropout or a mask")
    packed.windows.add(options.get("sliding_window") or _NO_WINDOW)
    flat = [part[0].transpose(0, 1) for part in (query, key, value)]
    groups = query.shape[1] // key.shape[1]
    found = []
    for num_rows, index in packed.buckets:
        query_R, key_R, value_R = (
            part.index_select(0, index).unflatten(0, (num_rows, -1)).transpose(1, 2)
            for part in flat
        )
        out = torch.nn.functional.scaled_dot_product_attention(
            query_R,
            repeat_kv(key_R, groups),
            repeat_kv(value_R, groups),
            scale=scaling,
            is_causal=True,
        )
        found.append(out.transpose(1, 2).flatten(0, 1))
    return torch.cat(found).index_select(0, packed.back)[None], None


AttentionInterface.register(_NAME, _attention)

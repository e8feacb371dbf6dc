"""A forward pass without padding in which rows of one prompt compute it once.

    rows      p p p a a │ p p p b │ q q c c c          p, q prompts; a, b, c completions
    packed    p p p a a b q q c c c                    one sequence: every layer but attention
    attention p p p a a / p p p b . / q q c c c        gathered into rows, causal, and back

Everything except attention treats each token separately, so one long sequence with the right
positions gives the same numbers. transformers lets attention be replaced by name: this one gathers
queries, keys and values into rows, runs torch's causal attention on them, and scatters the results
back. Autograd sums the gradients of a shared prompt over its rows.

A long prompt is computed *first*, alone; each completion's queries then see it and their own past,
and the prompt's queries are not repeated per row. If rows share much (one prompt, or prompts that
begin with the same examples), they form one *tree* instead: each token once, under a mask that
shows it only its own past.

    x x x p p a a b           x x x the shared beginning, p and q two questions
          q q c               a, b, c completions

Some models cannot be packed: recurrent layers, soft caps, sinks. So a few tokens are computed both
ways when a model is first used (`can_pack`); if the results differ, rows are padded instead.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from transformers.integrations.sdpa_attention import repeat_kv

log = logging.getLogger(__name__)

_NAME = "shoal_packed"
_ATTEND, _WINDOWS = "shoal_attend", "shoal_windows"
_REPLACED_ATTENTION = "sdpa"
"""torch's own attention, the default; any other was chosen on purpose."""
MAX_COST_RATIO = 0.9
"""Share of one way's work at which an alternative is chosen: packed instead of padded rows, or a
prompt computed first instead of whole rows. Also the share of the longest row's length that a row
must have to be padded to it: a larger share makes more calls, a smaller one more padding."""
_WIDTH_MULTIPLE = 16
"""Row widths in attention are multiples of this many tokens, a float32 vector: 191 cost a CPU a
fifth more than 192, and 31 a quarter more than 32 (one thread, AVX-512)."""
_SINGLE_CALL_TOKENS = 128
"""Tokens up to which one attention call over all costs less than one call per length."""
_MIN_TREE_TOKENS = _SINGLE_CALL_TOKENS
"""Tokens below which a tree's mask costs more than it saves."""
MIN_PREFILL_SAVING = 4096
"""Masked positions that computing a prompt first must save, to pay for the extra calls."""
_NO_GQA_DEVICES = ("cpu",)
"""Devices whose attention needs as many key heads as query heads."""
_UNSUPPORTED_ARGUMENTS = ("softcap", "s_aux", "position_bias", "cache")
"""Attention arguments of some models that this attention does not support."""


@dataclass(slots=True, kw_only=True)
class TokenRow:
    """A prompt and a completion, both not empty.

    A completion may contain tokens of an environment: only policy tokens are predicted.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    completion_positions: Sequence[int] = ()
    """Positions of policy tokens in the completion, ascending; empty stands for all of it."""
    num_shared: int = 0
    """Leading prompt tokens that other prompts share."""

    def __post_init__(self) -> None:
        self.completion_positions = self.completion_positions or range(len(self.completion_ids))

    @property
    def length(self) -> int:
        """Return the number of tokens of both."""
        return len(self.prompt_ids) + len(self.completion_ids)

    @property
    def prompt(self) -> tuple[int, ...]:
        """Return the prompt as a key for grouping rows."""
        return tuple(self.prompt_ids)

    @property
    def beginning(self) -> tuple[int, ...]:
        """Return the shared part of the prompt, or all of it if none is shared."""
        return self.prompt[: self.num_shared] or self.prompt


Row = TypeVar("Row", bound=TokenRow)


def group_rows(
    rows: Sequence[Row], key: Callable[[Row], tuple[int, ...]]
) -> dict[tuple[int, ...], list[Row]]:
    """Return rows grouped by a key, such as their prompt or its beginning."""
    found: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor, float | None], torch.Tensor]
"""Replaces attention during one forward pass over one long sequence: maps the layer's number,
queries, keys and values, [1, heads, M, d] each, and their scale to [1, M, heads, d]."""


class CannotPackError(Exception):
    """The model needs attention that this module does not support."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """One attention call: rows of similar length, completions after a prompt, or a tree."""

    num_rows: int
    query_index: torch.Tensor
    """[rows·queries], indices of the tokens whose queries are gathered."""
    key_index: torch.Tensor
    """[rows·keys], indices of the tokens whose keys and values are gathered."""
    mask: torch.Tensor | None
    """[queries, keys] for every row: the keys that a query sees; None for causal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Rows as one sequence of M tokens, with N predicted tokens in the order of the rows."""

    ids: torch.Tensor
    """[1, M]"""
    positions: torch.Tensor
    """[1, M], position of each token in its row."""
    target_indices: torch.Tensor
    """[N], index in the sequence at which each policy token is predicted."""
    calls: list[AttentionCall]
    back: torch.Tensor
    """[M], index of each token's result among the results of all calls."""

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float | None,
    ) -> torch.Tensor:
        """See `Attend`."""
        flat = [part[0].transpose(0, 1) for part in (query, key, value)]
        groups = query.shape[1] // key.shape[1]
        found = []
        for call in self.calls:
            query_R, key_R, value_R = (
                part.index_select(0, index).unflatten(0, (call.num_rows, -1)).transpose(1, 2)
                for part, index in zip(
                    flat, (call.query_index, call.key_index, call.key_index), strict=True
                )
            )
            mask = call.mask
            # Fused GPU kernels take fewer key heads or a mask, not both: for both, most GPUs only
            # have the kernel that stores all scores, also for the gradient.
            grouped = query.device.type not in _NO_GQA_DEVICES and mask is None
            out = torch.nn.functional.scaled_dot_product_attention(
                query_R,
                key_R if grouped else repeat_kv(key_R, groups),
                value_R if grouped else repeat_kv(value_R, groups),
                attn_mask=mask,
                scale=scale,
                is_causal=mask is None,
                enable_gqa=grouped and groups > 1,
            )
            found.append(out.transpose(1, 2).flatten(0, 1))
        return torch.cat(found).index_select(0, self.back)[None]


def packed_tokens(rows: Sequence[TokenRow]) -> int:
    """Return the length of the sequence that these rows pack to."""
    prompts = {row.prompt: row.num_shared for row in rows}
    shared = {prompt[:size] for prompt, size in prompts.items()}
    own = sum(len(prompt) - size for prompt, size in prompts.items())
    return sum(map(len, shared)) + own + sum(len(row.completion_ids) - 1 for row in rows)


def attended_tokens(rows: Sequence[TokenRow]) -> int:
    """Return the number of queries in attention: a tree's tokens once, a first prompt's once."""
    return sum(
        packed_tokens(family) if _is_tree(family) else sum(map(_queries, _same_prompt(family)))
        for family in _families(rows)
    )


def _queries(rows: Sequence[TokenRow]) -> int:
    """Return the same for rows of one prompt."""
    first = len(rows[0].prompt_ids) * (len(rows) - 1) if _computes_prompt_first(rows) else 0
    return sum(map(_length, rows)) - first


def _families(rows: Sequence[TokenRow]) -> list[list[TokenRow]]:
    return list(group_rows(rows, lambda row: row.beginning).values())


def _same_prompt(family: Sequence[TokenRow]) -> list[list[TokenRow]]:
    return list(group_rows(family, lambda row: row.prompt).values())


def _is_tree(family: Sequence[TokenRow]) -> bool:
    """Return whether a tree costs attention less; a row's causal mask is half empty."""
    size = packed_tokens(family)
    return size >= _MIN_TREE_TOKENS and 2 * size * size < sum(_length(row) ** 2 for row in family)


def _computes_prompt_first(rows: Sequence[TokenRow]) -> bool:
    """Return whether attention does less work if the rows' common prompt is computed first.

    A whole row's causal mask is half empty and that half is skipped; a completion's mask is full.
    """
    size = len(rows[0].prompt_ids)
    whole = sum(_length(row) ** 2 for row in rows)
    tails = sum((_length(row) - size) * _length(row) for row in rows)
    left = size * size + 2 * tails
    return len(rows) > 1 and left < MAX_COST_RATIO * whole and whole - left > MIN_PREFILL_SAVING


def _length(row: TokenRow) -> int:
    """Return the number of tokens read; the last one is only predicted."""
    return row.length - 1


@dataclass(slots=True)
class _Layout:
    """Tokens laid out in one sequence; a run is a list of their indices."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    runs: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    """Maps a shared beginning to the indices of its tokens."""

    def add(self, before: list[int], ids: Sequence[int]) -> list[int]:
        """Append tokens after those at `before`; return the indices of all."""
        first = len(self.ids)
        self.ids.extend(ids)
        self.positions.extend(range(len(before), len(before) + len(ids)))
        return [*before, *range(first, len(self.ids))]

    def add_once(self, whole: tuple[int, ...], before: list[int]) -> list[int]:
        """Append the part of `whole` after `before`, unless present; return its indices."""
        if whole not in self.runs:
            self.runs[whole] = self.add(before, whole[len(before) :])
        return self.runs[whole]


def pack_rows(rows: Sequence[TokenRow], device: torch.device) -> Packed:
    """Lay out rows; equal prompts, and equal beginnings that rows share, are stored once."""
    layout = _Layout()
    places: list[int] = []
    paths: dict[int, list[int]] = {}
    for row in rows:
        prompt = row.prompt
        start = layout.add_once(prompt[: row.num_shared], []) if row.num_shared else []
        of_prompt = layout.add_once(prompt, start)
        # The last token is predicted, never read.
        path = paths[id(row)] = layout.add(of_prompt, row.completion_ids[:-1])
        places.extend(path[len(prompt) - 1 + place] for place in row.completion_positions)
    # This few tokens form one tree whatever their prompts; the mask separates them.
    families = [list(rows)] if len(layout.ids) <= _SINGLE_CALL_TOKENS else _families(rows)
    trees: list[list[list[int]]] = []
    whole_rows: list[list[int]] = []
    tails: list[tuple[int, list[list[int]]]] = []
    for family in families:
        if len(layout.ids) <= _SINGLE_CALL_TOKENS or _is_tree(family):
            trees.append([paths[id(row)] for row in family])
            continue
        for same in _same_prompt(family):
            found = [paths[id(row)] for row in same]
            if _computes_prompt_first(same):
                size = len(same[0].prompt_ids)
                whole_rows.append(found[0][:size])
                tails += [(size, part) for part in _bucket_by_width(found) if len(part[0]) > size]
            else:
                whole_rows += found
    calls = _Calls(back=[0] * len(layout.ids), device=device)
    for members in _bucket_by_width(whole_rows):
        calls.add(members, width=_padded_width(members[0]))
    for size, members in tails:
        width = len(members[0])
        mask = torch.ones(width - size, width, dtype=torch.bool).tril(size)
        calls.add(members, width=width, behind=size, mask=mask)
    for tree in trees:
        tokens = sorted({token for path in tree for token in path})
        calls.add([tokens], width=len(tokens), mask=_mask(tokens, tree))
    return Packed(
        ids=torch.tensor([layout.ids], device=device),
        positions=torch.tensor([layout.positions], device=device),
        target_indices=torch.tensor(places, device=device),
        calls=calls.made,
        back=torch.tensor(calls.back, device=device),
    )


@dataclass(slots=True, kw_only=True)
class _Calls:
    """Attention calls under construction."""

    back: list[int]
    """Index of each token's result among all results."""
    device: torch.device
    made: list[AttentionCall] = field(default_factory=list)
    num_results: int = 0

    def add(
        self,
        members: list[list[int]],
        *,
        width: int,
        behind: int = 0,
        mask: torch.Tensor | None = None,
    ) -> None:
        """Add a call over rows padded to `width`; of the first `behind` tokens of each, only keys
        and values are needed."""
        # Rows are padded with their first token, seen only by itself.
        filled = [[*row, *row[:1] * (width - len(row))] for row in members]
        for number, row in enumerate(members):
            first = self.num_results + number * (width - behind)
            for place, token in enumerate(row[behind:]):
                self.back[token] = first + place
        self.num_results += len(members) * (width - behind)
        query_index = torch.tensor([row[behind:] for row in filled], device=self.device).flatten()
        key_index = torch.tensor(filled, device=self.device).flatten() if behind else query_index
        self.made.append(
            AttentionCall(
                num_rows=len(members),
                query_index=query_index,
                key_index=key_index,
                mask=None if mask is None else mask.to(self.device),
            )
        )


def _mask(tokens: Sequence[int], paths: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the attention mask among `tokens`, [n, n]: each sees earlier ones on its path."""
    local = {token: place for place, token in enumerate(tokens)}
    visible = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    known: set[int] = set()
    for path in paths:
        first = next((i for i, token in enumerate(path) if token not in known), len(path))
        known.update(path[first:])
        own = torch.tensor([local[token] for token in path])
        lower = torch.ones(len(path) - first, len(path), dtype=torch.bool).tril(first)
        visible[own[first:, None], own[None, :]] = lower
    return visible


def _padded_width(row: Sequence[int]) -> int:
    """Return the padded width of a row that is the longest of its call."""
    return -(-len(row) // _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE


def _bucket_by_width(tokens: list[list[int]]) -> list[list[list[int]]]:
    """Return the rows in buckets of similar width, longest first."""
    ordered = sorted(tokens, key=len, reverse=True)
    buckets: list[list[list[int]]] = []
    for row in ordered:
        if buckets and _padded_width(row) >= MAX_COST_RATIO * _padded_width(buckets[-1][0]):
            buckets[-1].append(row)
        else:
            buckets.append([row])
    return buckets


def packed_hidden(model: Any, packed: Packed, windows: set[float] | None = None) -> torch.Tensor:
    """Return last hidden states at `target_indices`, [N, H]; call within `packing`, also backward.

    `windows` collects the attention windows that the model asks for.
    """
    hidden_MH = sequence_hidden(model, packed.ids, packed.positions, packed.attend, windows)
    return hidden_MH.index_select(0, packed.target_indices)


def sequence_hidden(
    model: Any,
    ids: torch.Tensor,
    positions: torch.Tensor,
    attend: Attend,
    windows: set[float] | None = None,
) -> torch.Tensor:
    """Return last hidden states of one long sequence, [M, H]; ids and positions are [1, M]."""
    given = {_ATTEND: attend, _WINDOWS: windows}
    body = model.base_model(input_ids=ids, position_ids=positions, use_cache=False, **given)
    hidden_MH: torch.Tensor = body.last_hidden_state[0]
    return hidden_MH


@contextlib.contextmanager
def packing(model: Any) -> Iterator[None]:
    """Within, `sequence_hidden` uses this module's attention, other calls torch's own."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    if before != _REPLACED_ATTENTION:
        yield
        return
    _register_attention()
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = before


@cache
def _register_attention() -> None:
    # Every loaded model has imported this; a refusal would wait two seconds for it.
    from transformers import AttentionInterface

    AttentionInterface.register(_NAME, _attention)


_max_packed_length: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
"""Longest row that a model can pack; 0 if none."""


def can_pack(model: Any, device: torch.device, longest: int) -> bool:
    """Return whether packing reproduces the model's hidden states for rows up to `longest` tokens.

    Tested once per model. Up to the size of an attention window, the window has no effect.
    """
    if model not in _max_packed_length:
        _max_packed_length[model] = _probe(model, device)
        log.debug("%s: packs rows up to %s tokens", type(model).__name__, _max_packed_length[model])
    return longest <= _max_packed_length[model]


def _probe(model: Any, device: torch.device) -> float:
    config = model.config.get_text_config()
    if config._attn_implementation != _REPLACED_ATTENTION:
        return 0
    ids = [index % config.vocab_size for index in (3, 1, 4, 1, 5, 9, 2, 6)]
    rows = [
        TokenRow(prompt_ids=ids[:3], completion_ids=ids[3:7]),
        TokenRow(prompt_ids=ids[:3], completion_ids=ids[5:]),
        TokenRow(prompt_ids=ids[4:], completion_ids=ids[:2]),
    ]
    with torch.no_grad():
        alone = []
        for row in rows:
            whole = torch.tensor([[*row.prompt_ids, *row.completion_ids[:-1]]], device=device)
            found = model.base_model(input_ids=whole, use_cache=False).last_hidden_state[0]
            alone.append(found[len(row.prompt_ids) - 1 :])
        try:
            packed = pack_rows(rows, device)
            windows = {float(getattr(config, "attention_chunk_size", None) or math.inf)}
            with packing(model):
                packed_NH = packed_hidden(model, packed, windows).float()
        except (CannotPackError, TypeError, ValueError, RuntimeError, IndexError) as error:
            # Models without positions, or that do not pass options to attention, fail variously.
            log.debug("%s", error)
            return 0
    expected_NH = torch.cat(alone).float()
    off = float((packed_NH - expected_NH).norm() / expected_NH.norm())
    close = off < (1e-4 if next(model.parameters()).dtype == torch.float32 else 3e-2)
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
    """Attend with transformers' signature: [1, heads, M, d] each; returns [1, M, heads, d]."""
    attend: Attend | None = options.get(_ATTEND)
    if attend is None or any(options.get(name) is not None for name in _UNSUPPORTED_ARGUMENTS):
        raise CannotPackError("attention asks for more than a causal mask")
    if dropout or attention_mask is not None:
        raise CannotPackError("attention asks for dropout or a mask")
    if (windows := options.get(_WINDOWS)) is not None:
        windows.add(options.get("sliding_window") or math.inf)
    return attend(getattr(module, "layer_idx", 0), query, key, value, scaling), None

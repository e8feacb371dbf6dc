"""A forward pass without padding in which rows of one prompt compute it once.

    rows      p p p a a │ p p p b │ q q c c c          p, q prompts; a, b, c completions
    packed    p p p a a b q q c c c                    one sequence: every layer but attention
    attention p p p a a / p p p b . / q q c c c        gathered into rows, causal, and back

Everything but attention treats each token by itself, so one long sequence with the right positions
gives the same numbers. Attention is transformers' to replace by name: ours gathers queries, keys
and values into rows, lets torch's own causal attention work on these, and puts the results back.
Gradients of a shared prompt are the sum over its rows, by autograd.

Where a prompt is long it is computed *first*, by itself, and each completion's queries see it and
their own past: it is then no query of each of its rows. Where much is shared, rows of one prompt,
or of all prompts that begin with the same examples, are one *tree* instead: each token once, under
a mask that shows it its own past alone.

    x x x p p a a b           x x x the shared beginning, p and q two questions
          q q c               a, b, c completions

Not every model is made that way: recurrent layers, soft caps, sinks. So the first time a model
comes, a few tokens are computed both ways (`can_pack`); where they differ rows are padded instead.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv

log = logging.getLogger(__name__)

_NAME = "shoal_packed"
_ATTEND, _WINDOWS = "shoal_attend", "shoal_windows"
_REPLACED = "sdpa"
"""torch's own attention, the usual choice; another was asked for on purpose."""
PAYS = 0.9
"""Share of the work of one way that another may have to be taken instead: rows that are packed
beside padded ones, a prompt that is computed first beside whole rows. And the share of the longest
row's length that a row must have to be padded to it: a larger one makes more calls, a smaller one
more padding."""
_EVEN = 16
"""Rows' width in attention is a multiple of this many tokens, a vector of float32: 191 cost a CPU a
fifth more than 192 do, and 31 a quarter more than 32 (one thread, AVX-512)."""
_ONE_CALL = 128
"""Tokens up to which attention over all of them at once costs less than a call for each length."""
_LEAST_TREE = _ONE_CALL
"""Tokens below which a tree's mask costs more than it saves."""
FIRST_SAVES = 4096
"""Masked places that a prompt computed first must save: its calls have a cost of their own."""
_REPEATED_ON = ("cpu",)
"""Devices whose attention takes as many key heads as query heads, and no fewer."""
_UNKNOWN = ("softcap", "s_aux", "position_bias", "cache")
"""Arguments by which some models ask of attention something that ours does not do."""


@dataclass(slots=True, kw_only=True)
class TokenRow:
    """A prompt and a completion, both not empty.

    A completion may hold what others said in between: only what the policy said is predicted.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    said: Sequence[int] = ()
    """Places in the completion of the tokens that the policy said, ascending; empty stands for all
    of them."""
    num_shared: int = 0
    """Tokens of the prompt's beginning that other prompts begin with too."""

    def __post_init__(self) -> None:
        self.said = self.said or range(len(self.completion_ids))

    @property
    def length(self) -> int:
        """Tokens of both."""
        return len(self.prompt_ids) + len(self.completion_ids)

    @property
    def prompt(self) -> tuple[int, ...]:
        """The prompt, to tell rows of one prompt by."""
        return tuple(self.prompt_ids)

    @property
    def beginning(self) -> tuple[int, ...]:
        """The part of the prompt that others begin with too, or else all of it."""
        return self.prompt[: self.num_shared] or self.prompt


Row = TypeVar("Row", bound=TokenRow)


def alike(
    rows: Sequence[Row], key: Callable[[Row], tuple[int, ...]]
) -> dict[tuple[int, ...], list[Row]]:
    """Return the rows of each prompt, or of each beginning, together."""
    found: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor, float | None], torch.Tensor]
"""The replacement for attention during one forward pass over one long sequence: from the layer's
number, queries, keys and values, [1, heads, M, d] each, and their scale, to [1, M, heads, d]."""


class CannotPackError(Exception):
    """The model asks for another attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """One call of attention: rows of similar length, completions behind a prompt, or a tree."""

    num_rows: int
    asking: torch.Tensor
    """[rows·queries], the tokens whose queries it gathers."""
    seen: torch.Tensor
    """[rows·keys], the tokens whose keys and values it gathers."""
    mask: torch.Tensor | None
    """[queries, keys] of every row: the keys that a query sees; None where all earlier ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Rows as one sequence of M tokens; N predicted tokens, row after row as they were given."""

    ids: torch.Tensor
    """[1, M]"""
    positions: torch.Tensor
    """[1, M], of each token in its row."""
    places: torch.Tensor
    """[N], where in the sequence each token that the policy said is predicted."""
    calls: list[AttentionCall]
    back: torch.Tensor
    """[M], where in the results of all calls, one after another, each token's is."""

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
                for part, index in zip(flat, (call.asking, call.seen, call.seen), strict=True)
            )
            mask = call.mask
            # A card's fused kernels take fewer key heads, or a mask, but not both together: for
            # both, most cards have only the kernel that holds every score, for the gradient too.
            grouped = query.device.type not in _REPEATED_ON and mask is None
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
    """Length of the sequence that these rows pack to."""
    prompts = {row.prompt: row.num_shared for row in rows}
    shared = {prompt[:size] for prompt, size in prompts.items()}
    own = sum(len(prompt) - size for prompt, size in prompts.items())
    return sum(map(len, shared)) + own + sum(len(row.completion_ids) - 1 for row in rows)


def attended_tokens(rows: Sequence[TokenRow]) -> int:
    """Tokens that attention holds queries of: a tree's once, a prompt's that is computed first."""
    return sum(
        packed_tokens(family) if _is_tree(family) else sum(map(_queries, _same_prompt(family)))
        for family in _families(rows)
    )


def _queries(rows: Sequence[TokenRow]) -> int:
    """The same of rows of one prompt."""
    first = len(rows[0].prompt_ids) * (len(rows) - 1) if _is_first(rows) else 0
    return sum(map(_length, rows)) - first


def _families(rows: Sequence[TokenRow]) -> list[list[TokenRow]]:
    return list(alike(rows, lambda row: row.beginning).values())


def _same_prompt(family: Sequence[TokenRow]) -> list[list[TokenRow]]:
    return list(alike(family, lambda row: row.prompt).values())


def _is_tree(family: Sequence[TokenRow]) -> bool:
    """Return whether these rows cost attention less as a tree: a row's mask is half empty."""
    size = packed_tokens(family)
    return size >= _LEAST_TREE and 2 * size * size < sum(_length(row) ** 2 for row in family)


def _is_first(rows: Sequence[TokenRow]) -> bool:
    """Return whether attention has less work when the rows' one prompt is computed first.

    A whole row's mask is half empty, and that half is passed over; a completion's is full.
    """
    size = len(rows[0].prompt_ids)
    whole = sum(_length(row) ** 2 for row in rows)
    tails = sum((_length(row) - size) * _length(row) for row in rows)
    left = size * size + 2 * tails
    return len(rows) > 1 and left < PAYS * whole and whole - left > FIRST_SAVES


def _length(row: TokenRow) -> int:
    """Tokens of a row that are read: its last is predicted alone."""
    return row.length - 1


@dataclass(slots=True)
class _Laid:
    """Tokens laid out one after another; a run is some of them, by place."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    runs: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    """Maps what several rows begin with to the places of all its tokens."""

    def add(self, before: list[int], ids: Sequence[int]) -> list[int]:
        """Lay out tokens that come after those at `before`; return the places of all."""
        first = len(self.ids)
        self.ids.extend(ids)
        self.positions.extend(range(len(before), len(before) + len(ids)))
        return [*before, *range(first, len(self.ids))]

    def once(self, whole: tuple[int, ...], before: list[int]) -> list[int]:
        """The same of what `whole` has after `before`, unless it is there."""
        if whole not in self.runs:
            self.runs[whole] = self.add(before, whole[len(before) :])
        return self.runs[whole]


def pack_rows(rows: Sequence[TokenRow], device: torch.device) -> Packed:
    """Lay out rows; equal prompts become one, and equal beginnings that rows name."""
    laid = _Laid()
    places: list[int] = []
    paths: dict[int, list[int]] = {}
    for row in rows:
        prompt = row.prompt
        start = laid.once(prompt[: row.num_shared], []) if row.num_shared else []
        of_prompt = laid.once(prompt, start)
        # The last token is predicted, never read.
        path = paths[id(row)] = laid.add(of_prompt, row.completion_ids[:-1])
        places.extend(path[len(prompt) - 1 + place] for place in row.said)
    # So few are one tree, whatever their prompts: who sees whom is the mask's affair.
    families = [list(rows)] if len(laid.ids) <= _ONE_CALL else _families(rows)
    trees: list[list[list[int]]] = []
    singly: list[list[int]] = []
    tails: list[tuple[int, list[list[int]]]] = []
    for family in families:
        if len(laid.ids) <= _ONE_CALL or _is_tree(family):
            trees.append([paths[id(row)] for row in family])
            continue
        for same in _same_prompt(family):
            found = [paths[id(row)] for row in same]
            if _is_first(same):
                size = len(same[0].prompt_ids)
                singly.append(found[0][:size])
                tails += [(size, part) for part in _similar(found) if len(part[0]) > size]
            else:
                singly += found
    calls = _Calls(back=[0] * len(laid.ids), device=device)
    for members in _similar(singly):
        calls.add(members, width=_width(members[0]))
    for size, members in tails:
        width = len(members[0])
        mask = torch.ones(width - size, width, dtype=torch.bool).tril(size)
        calls.add(members, width=width, behind=size, mask=mask)
    for tree in trees:
        tokens = sorted({token for path in tree for token in path})
        calls.add([tokens], width=len(tokens), mask=_mask(tokens, tree))
    return Packed(
        ids=torch.tensor([laid.ids], device=device),
        positions=torch.tensor([laid.positions], device=device),
        places=torch.tensor(places, device=device),
        calls=calls.made,
        back=torch.tensor(calls.back, device=device),
    )


@dataclass(slots=True, kw_only=True)
class _Calls:
    """Calls of attention while they are made."""

    back: list[int]
    """The place of each token's result among all."""
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
        """Add one over rows that are filled up to a `width`, of whose first `behind` tokens only
        keys and values are needed."""
        # What fills up a row is its first token, seen by itself alone.
        filled = [[*row, *row[:1] * (width - len(row))] for row in members]
        for number, row in enumerate(members):
            first = self.num_results + number * (width - behind)
            for place, token in enumerate(row[behind:]):
                self.back[token] = first + place
        self.num_results += len(members) * (width - behind)
        asking = torch.tensor([row[behind:] for row in filled], device=self.device).flatten()
        seen = torch.tensor(filled, device=self.device).flatten() if behind else asking
        self.made.append(
            AttentionCall(
                num_rows=len(members),
                asking=asking,
                seen=seen,
                mask=None if mask is None else mask.to(self.device),
            )
        )


def _mask(tokens: Sequence[int], paths: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the attention mask among `tokens`, [n, n]: each sees the earlier ones on its path."""
    local = {token: place for place, token in enumerate(tokens)}
    seen = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    known: set[int] = set()
    for path in paths:
        first = next((i for i, token in enumerate(path) if token not in known), len(path))
        known.update(path[first:])
        own = torch.tensor([local[token] for token in path])
        lower = torch.ones(len(path) - first, len(path), dtype=torch.bool).tril(first)
        seen[own[first:, None], own[None, :]] = lower
    return seen


def _width(row: Sequence[int]) -> int:
    """Return the width that attention gives a row that is the longest of its call."""
    return -(-len(row) // _EVEN) * _EVEN


def _similar(tokens: list[list[int]]) -> list[list[list[int]]]:
    """Return the rows in parts of similar width, the longest first."""
    ordered = sorted(tokens, key=len, reverse=True)
    buckets: list[list[list[int]]] = []
    for row in ordered:
        if buckets and _width(row) >= PAYS * _width(buckets[-1][0]):
            buckets[-1].append(row)
        else:
            buckets.append([row])
    return buckets


def packed_hidden(model: Any, packed: Packed, windows: set[float] | None = None) -> torch.Tensor:
    """Last hidden states at `places`, [N, H]. Call within `packing`, backward included.

    `windows` takes in the attention windows that the model asks for.
    """
    hidden_MH = laid_out_hidden(model, packed.ids, packed.positions, packed.attend, windows)
    return hidden_MH.index_select(0, packed.places)


def laid_out_hidden(
    model: Any,
    ids: torch.Tensor,
    positions: torch.Tensor,
    attend: Attend,
    windows: set[float] | None = None,
) -> torch.Tensor:
    """Last hidden states of one long sequence, [M, H]; ids and positions are [1, M]."""
    given = {_ATTEND: attend, _WINDOWS: windows}
    body = model.base_model(input_ids=ids, position_ids=positions, use_cache=False, **given)
    hidden_MH: torch.Tensor = body.last_hidden_state[0]
    return hidden_MH


@contextlib.contextmanager
def packing(model: Any) -> Iterator[None]:
    """Let the model's attention be ours in `laid_out_hidden`, and torch's own in other calls."""
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


_known: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
"""Longest row that a model can pack; 0 for none."""


def can_pack(model: Any, device: torch.device, longest: int) -> bool:
    """Return whether packing gives the model's own hidden states, rows up to `longest` tokens.

    Found out once a model. Within an attention window there is none.
    """
    if model not in _known:
        _known[model] = _probe(model, device)
        log.debug("%s: packs rows up to %s tokens", type(model).__name__, _known[model])
    return longest <= _known[model]


def _probe(model: Any, device: torch.device) -> float:
    config = model.config.get_text_config()
    if config._attn_implementation != _REPLACED:
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
            # Models that know no positions, or pass nothing on to attention, say so variously.
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
    """Attend by transformers' signature: [1, heads, M, d] each; returns [1, M, heads, d]."""
    attend: Attend | None = options.get(_ATTEND)
    if attend is None or any(options.get(name) is not None for name in _UNKNOWN):
        raise CannotPackError("attention asks for more than a causal mask")
    if dropout or attention_mask is not None:
        raise CannotPackError("attention asks for dropout or a mask")
    if (windows := options.get(_WINDOWS)) is not None:
        windows.add(options.get("sliding_window") or math.inf)
    return attend(getattr(module, "layer_idx", 0), query, key, value, scaling), None


AttentionInterface.register(_NAME, _attention)

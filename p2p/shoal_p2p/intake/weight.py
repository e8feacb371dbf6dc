"""Estimates a group's memory and processing cost, which differ from its wire size. Pure.

zstd compresses megabytes to a few hundred bytes, one emoji makes every character of its text four
bytes wide, and a log-probability of two bytes becomes a reference of eight.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from shoal_wire.codec import ParsedBatch, group_size
from shoal_wire.types import PublishedGroup, RolloutGroup

GROUP_OVERHEAD_BYTES = 1200
COMPLETION_OVERHEAD_BYTES = 120
"""Memory overhead of the Python objects, in bytes, as measured."""
_LOGPROB_OVERHEAD_BYTES = 6
TRUNCATION_MARK = "…"
"""Marks the end of a truncated text."""
_GROUP_S, _COMPLETION_S, _LOGPROB_S, _BYTE_S = 60e-6, 6e-6, 150e-9, 1e-9
"""Processing cost of each from the envelope to the buffer, in seconds, as measured."""


def weight_of(group: RolloutGroup) -> int:
    """Return the memory that a group occupies, in bytes. Cached on the group."""
    try:
        return group.known_weight
    except AttributeError:
        texts = sum(map(_width, (completion.text for completion in group.completions)))
        if (inline := group.task.inline) is not None:
            texts += _width(inline.question) + _width(inline.answer)
        logprobs = sum(len(completion.logprobs or ()) for completion in group.completions)
        found = (
            group_size(group)
            + GROUP_OVERHEAD_BYTES
            + COMPLETION_OVERHEAD_BYTES * len(group.completions)
            + texts
            + _LOGPROB_OVERHEAD_BYTES * logprobs
        )
        group.note("known_weight", found)
        return found


def work_of(groups: Sequence[RolloutGroup]) -> float:
    """Return the estimated cost of validating and storing groups, in seconds. Reads no clock."""
    num_completions = sum(len(group.completions) for group in groups)
    num_bytes = sum(map(group_size, groups))
    return _GROUP_S * len(groups) + _COMPLETION_S * num_completions + _BYTE_S * num_bytes


def is_light(parsed: ParsedBatch, max_s: float) -> bool:
    """Return whether finishing a parsed payload is estimated to take at most `max_s`."""
    left_s = max_s - _GROUP_S * parsed.num_groups - _COMPLETION_S * parsed.num_completions
    return left_s >= 0 and _LOGPROB_S * parsed.num_logprobs() <= left_s


def truncate(published: PublishedGroup, *, max_chars: int) -> PublishedGroup:
    """Return a group truncated to `max_chars`, without log-probabilities.

    Each completion keeps an equal share; the group id stays that of the whole group.
    """
    group = published.group
    share = max(1, max_chars // max(1, len(group.completions)))
    completions = tuple(
        replace(completion, text=_truncate(completion.text, share), logprobs=None)
        for completion in group.completions
    )
    task = group.task
    if (inline := task.inline) is not None:
        question, answer = (
            _truncate(inline.question, max_chars),
            _truncate(inline.answer, max_chars),
        )
        task = replace(task, inline=replace(inline, question=question, answer=answer))
    return replace(published, group=RolloutGroup(task=task, completions=completions))


def _width(text: str) -> int:
    """Return how many more bytes a text takes in memory than in UTF-8."""
    return 0 if text.isascii() else max(0, sys.getsizeof(text) - len(text.encode()))


def _truncate(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars] + TRUNCATION_MARK

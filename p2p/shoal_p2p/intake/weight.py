"""A group's weight in memory and cost in work, which its wire size does not show. Pure.

zstd makes a few hundred bytes of megabytes, one emoji makes four bytes of each character of its
text, and a log-probability of two bytes is a reference of eight.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from shoal_wire.codec import ParsedBatch, group_size
from shoal_wire.types import PublishedGroup, RolloutGroup

GROUP_OVERHEAD_BYTES = 1200
COMPLETION_OVERHEAD_BYTES = 120
"""Memory that Python's objects add to the text, in bytes, as measured."""
_LOGPROB_OVERHEAD_BYTES = 6
CUT_MARK = "…"
"""Ends a text of which the rest was left out."""
_GROUP_S, _COMPLETION_S, _LOGPROB_S, _BYTE_S = 60e-6, 6e-6, 150e-9, 1e-9
"""Cost of each from the envelope to the buffer, in seconds, as measured."""


def weight_of(group: RolloutGroup) -> int:
    """Return the bytes that a group occupies. Worked out once, however often it is asked for."""
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
    """Return what judging and keeping groups costs, in seconds by count: no clock is read."""
    num_completions = sum(len(group.completions) for group in groups)
    num_bytes = sum(map(group_size, groups))
    return _GROUP_S * len(groups) + _COMPLETION_S * num_completions + _BYTE_S * num_bytes


def is_light(parsed: ParsedBatch, most_s: float) -> bool:
    """Return whether what is left to do with a parsed payload takes at most `most_s`, by count."""
    left_s = most_s - _GROUP_S * parsed.num_groups - _COMPLETION_S * parsed.num_completions
    return left_s >= 0 and _LOGPROB_S * parsed.num_logprobs() <= left_s


def cut_short(published: PublishedGroup, *, max_chars: int) -> PublishedGroup:
    """Return a group with as much of its texts as `max_chars` hold, and without claims.

    Each completion keeps its share; the id stays that of the whole group.
    """
    group = published.group
    share = max(1, max_chars // max(1, len(group.completions)))
    completions = tuple(
        replace(completion, text=_cut(completion.text, share), logprobs=None)
        for completion in group.completions
    )
    task = group.task
    if (inline := task.inline) is not None:
        question, answer = _cut(inline.question, max_chars), _cut(inline.answer, max_chars)
        task = replace(task, inline=replace(inline, question=question, answer=answer))
    return replace(published, group=RolloutGroup(task=task, completions=completions))


def _width(text: str) -> int:
    """Return by how much a text is longer in memory than in UTF-8."""
    return 0 if text.isascii() else max(0, sys.getsizeof(text) - len(text.encode()))


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars] + CUT_MARK

"""Finds the parts of a game's messages that its environment reads, by replaying the game. Pure.

    messages ─▶ of each, its last [move] ─▶ replay: the same reward? ─▶ the rest is unread
                 └─ first [move], {…}, last word, first word, without margins: the first that is

Environments read messages in their own ways: one strips white space, another takes what stands in
brackets and a third parses JSON. None of them says so, and all of them are replayed. So what can be
left out of all messages without a change of the reward was not what earned it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from shoal_tasks.types import Play, PlayRequest

Span = tuple[int, int]
"""A range of characters of a message."""

_BRACKETS: Final = re.compile(r"\[[^\[\]]*\]")


def _last_move(message: str) -> Span | None:
    found = [one.span() for one in _BRACKETS.finditer(message)]
    return found[-1] if found else None


def _first_move(message: str) -> Span | None:
    found = _BRACKETS.search(message)
    return found.span() if found else None


def _object(message: str) -> Span | None:
    start, end = message.find("{"), message.rfind("}") + 1
    return (start, end) if 0 <= start < end else None


def _last_word(message: str) -> Span | None:
    words = message.split()
    return (len(message.rstrip()) - len(words[-1]), len(message.rstrip())) if words else None


def _first_word(message: str) -> Span | None:
    words = message.split()
    start = len(message) - len(message.lstrip())
    return (start, start + len(words[0])) if words else None


def _stripped(message: str) -> Span:
    start = len(message) - len(message.lstrip())
    return start, max(start, len(message.rstrip()))


PARTS: Final[tuple[Callable[[str], Span | None], ...]] = (
    _last_move,
    _first_move,
    _object,
    _last_word,
    _first_word,
    _stripped,
)
"""Functions that return a part of a message which an environment may read, or None without such a
part; tried in this order."""


def read_parts(
    play: Callable[[Sequence[PlayRequest]], Sequence[Play]],
    requests: Sequence[PlayRequest],
    plays: Sequence[Play],
) -> list[tuple[Span, ...] | None]:
    """Return, of each game, the range of each message that its reward needs; None for all of them.

    `plays` is what `play` returned for `requests`. At most six more replays a game, and none where
    no message has anything that could be left out.
    """
    found: list[tuple[Span, ...] | None] = [None] * len(requests)
    tried: list[set[tuple[str, ...]]] = [{request.messages} for request in requests]
    is_open = [one.reward > 0 and not one.error for one in plays]
    for part in PARTS:
        shorter: list[tuple[int, tuple[Span, ...], PlayRequest]] = []
        for index, request in enumerate(requests):
            found_here = list(map(part, request.messages))
            if not any(found_here):
                continue
            spans = tuple(
                one or _stripped(text)
                for one, text in zip(found_here, request.messages, strict=True)
            )
            kept = tuple(
                text[start:end] for text, (start, end) in zip(request.messages, spans, strict=True)
            )
            if is_open[index] and kept not in tried[index]:
                tried[index].add(kept)
                shorter.append((index, spans, replace(request, messages=kept)))
        again = play([request for _, _, request in shorter])
        for (index, spans, _), one in zip(shorter, again, strict=True):
            before = plays[index]
            if (one.reward, one.done, one.error) == (before.reward, before.done, ""):
                found[index], is_open[index] = spans, False
    return found

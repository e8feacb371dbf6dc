"""Finds the parts of a game's messages that its environment reads, by replaying the game. Pure.

    messages ─▶ without margins ─▶ replay: same reward? ─▶ the game is used without them
             ─▶ each one's last [move] ─▶ replay: same reward? ─▶ the rest is unread
                 └─ otherwise first [move], {…}, last word, first word: the first that works

Environments parse messages in their own ways: one strips white space, another takes the text in
brackets, a third parses JSON. They do not say which, but they can be replayed: what can be removed
from all messages without changing the reward did not earn it. White space around a message is
removed altogether. Words are not, because they may be the reasoning that found the move.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shoal_tasks.types import Play, PlayRequest

Span = tuple[int, int]
"""A character range of a message."""

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
)
"""Functions that return the part of a message that an environment may read, or None if there is
none, in the order of trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGame:
    """A game as its environment reads it."""

    messages: tuple[str, ...]
    """The messages, without margins that its reward does not need."""
    observations: tuple[str, ...]
    """The environment's replies to these messages."""
    parts: tuple[Span, ...] | None
    """The character range of each message that the reward needs; None for all of it."""


Replay = Callable[[Sequence[PlayRequest]], Sequence[Play]]


def read_games(play: Replay, requests: Sequence[PlayRequest]) -> list[ReadGame]:
    """Return each game without unneeded margins, and the parts that its reward needs.

    Needs at most six additional replays per game, and none if nothing can be removed from any
    message.
    """
    plays = list(play(requests))
    games = list(requests)
    for index, (request, one) in _shorter(play, requests, plays, _stripped).items():
        games[index], plays[index] = request, one
    parts: list[tuple[Span, ...] | None] = [None] * len(games)
    for part in PARTS:
        open_games = [game if parts[n] is None else None for n, game in enumerate(games)]
        for index in _shorter(play, open_games, plays, part):
            parts[index] = tuple(part(text) or (0, len(text)) for text in games[index].messages)
    return [
        ReadGame(messages=game.messages, observations=one.observations, parts=part)
        for game, one, part in zip(games, plays, parts, strict=True)
    ]


def _shorter(
    play: Replay,
    requests: Sequence[PlayRequest | None],
    plays: Sequence[Play],
    part: Callable[[str], Span | None],
) -> dict[int, tuple[PlayRequest, Play]]:
    """Return, by index, the games that earn the same with only this part of each message."""
    tried: dict[int, PlayRequest] = {}
    for index, request in enumerate(requests):
        if request is None or plays[index].error or plays[index].reward <= 0:
            continue
        spans = [part(text) or (0, len(text)) for text in request.messages]
        kept = tuple(
            text[start:end] for text, (start, end) in zip(request.messages, spans, strict=True)
        )
        if kept != request.messages:
            tried[index] = replace(request, messages=kept)
    again = zip(tried.items(), play(list(tried.values())), strict=True)
    return {
        index: (request, one)
        for (index, request), one in again
        if (one.reward, one.done, one.error) == (plays[index].reward, plays[index].done, "")
    }

"""Parts of a message that an environment ignores are found by replaying the game without them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_tasks.read_parts import ReadGame, read_games
from shoal_tasks.types import Play, PlayRequest
from tests.support import factories as make

Reads = Callable[[str], str]
"""The part of a message that an environment reads and compares with its next secret."""


def _match(pattern: str, message: str) -> str:
    found = re.search(pattern, message)
    return found.group(1) if found else ""


def _from_json(message: str) -> str:
    try:
        return str(json.loads(message[message.find("{") : message.rfind("}") + 1])["move"])
    except (ValueError, KeyError, TypeError):
        return ""


READS: dict[str, Reads] = {
    "white space is stripped": str.strip,
    "the first brackets": lambda text: _match(r"\[\s*(\w+)\s*\]", text),
    "the last brackets": lambda text: ([*re.findall(r"\[(\w+)\]", text), ""])[-2:][0],
    "an object": _from_json,
    "the first word": lambda text: ([*text.split(), ""])[0],
    "the last word": lambda text: ["", *text.split()][-1],
}
WRITES: dict[str, Callable[[str, str, str], str]] = {
    "white space is stripped": lambda move, a, b: f"{' ' * len(a)}{move}{chr(9) * len(b)}",
    "the first brackets": lambda move, a, b: f"{a} [{move}] {b} [junk]",
    "the last brackets": lambda move, a, b: f"[junk] {a} [{move}]{b}",
    "an object": lambda move, a, b: f'{a}{{"move": "{move}"}}{b}',
    "the first word": lambda move, a, b: f"\n{move} {a} {b}",
    "the last word": lambda move, a, b: f"{a} {b} {move}\t",
}
PLAIN: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(READS, str),
    "the first brackets": "[{}]".format,
    "the last brackets": "[{}]".format,
    "an object": '{{"move": "{}"}}'.format,
}


class Worker:
    """Plays games with given moves, and counts them."""

    def __init__(self, reads: Reads, moves: Sequence[str]) -> None:
        self._reads, self._moves = reads, moves
        self.played = 0

    def play(self, requests: Sequence[PlayRequest]) -> list[Play]:
        self.played += len(requests)
        return [self._one(request.messages) for request in requests]

    def _one(self, messages: Sequence[str]) -> Play:
        right = [
            self._reads(replied) == move
            for replied, move in zip(messages, self._moves, strict=True)
        ]
        return Play(
            observations=tuple(f"you wrote {replied}" for replied in messages),
            done=all(right),
            reward=float(all(right)),
        )


def read(worker: Worker, *messages: str) -> ReadGame:
    request = PlayRequest(task=make.coordinates_at(1), messages=messages)
    (found,) = read_games(worker.play, [request])
    assert found.observations == tuple(f"you wrote {replied}" for replied in found.messages)
    return found


words = st.text("abc", min_size=1, max_size=4)


@pytest.mark.parametrize("kind", READS)
@settings(max_examples=40)
@given(moves=st.lists(words, min_size=1, max_size=4), before=words, after=words)
def test_what_is_planted_around_moves_is_unread(
    kind: str, moves: list[str], before: str, after: str
) -> None:
    before, after = f"BUY{before}", f"{after}NOW"
    messages = [WRITES[kind](move, before, after) for move in moves]
    worker = Worker(READS[kind], moves)
    found = read(worker, *messages)
    parts = found.parts or tuple((0, len(message)) for message in found.messages)
    for message, (start, end), move in zip(found.messages, parts, moves, strict=True):
        assert message == message.strip()
        kept = message[start:end]
        assert move in kept
        assert "BUY" not in kept and "NOW" not in kept
    assert worker.played <= 7


@pytest.mark.parametrize("kind", READS)
@given(moves=st.lists(words, min_size=1, max_size=4))
def test_a_message_that_is_its_move_is_read_whole_and_costs_hardly_a_replay(
    kind: str, moves: list[str]
) -> None:
    worker = Worker(READS[kind], moves)
    messages = tuple(map(PLAIN[kind], moves))
    found = read(worker, *messages)
    assert (found.messages, found.parts) == (messages, None)
    # An object has words, too, and is replayed with only the first and the last of them.
    assert worker.played <= (3 if kind == "an object" else 1)


@given(moves=st.lists(st.text(" [a]", min_size=1, max_size=4), min_size=1, max_size=3))
def test_an_environment_that_reads_all_of_a_message_keeps_it(moves: list[str]) -> None:
    found = read(Worker(str, moves), *moves)
    assert (found.messages, found.parts) == (tuple(moves), None)


def test_a_game_that_earns_nothing_is_not_played_again() -> None:
    worker = Worker(str.strip, ["a"])
    assert read(worker, " b ").messages == (" b ",)
    assert worker.played == 1

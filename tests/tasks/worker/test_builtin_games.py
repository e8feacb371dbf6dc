"""The games that come with shoal: their rewards, for arbitrary and for optimal play."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_tasks.builtin_games import BUILTIN_GAMES, HigherLower
from shoal_tasks.errors import NewerFamilyError
from shoal_tasks.families import GAMES_1, TRAIN_SEED_MIN, coordinates
from shoal_tasks.swarm import specs_of, starting_families
from shoal_tasks.turns import join_messages
from shoal_tasks.types import PlayRequest, ScoreRequest
from shoal_wire.manifest import make_manifest
from shoal_wire.types import FinishReason
from tests.tasks.here import HereWorker

(SPEC,) = GAMES_1
STOP = FinishReason.STOP
MESSAGES = st.one_of(st.integers(-5, 120).map(str), st.text(max_size=6))


def game_of(first: int, secret: int) -> HigherLower:
    """Return a game in the state after `reset`, with this number."""
    game = HigherLower()
    game.secret, game.left = first + secret, game.GUESSES
    return game


def rewards(first: int, messages: list[str]) -> list[float]:
    """Return the rewards of the same messages for each of the numbers."""
    earned = []
    for secret in range(HigherLower.NUMBERS):
        game, total, done = game_of(first, secret), 0.0, False
        for message in messages:
            if not done:
                _, reward, done = game.step(message)
                total += reward
        assert done
        earned.append(total)
    return earned


@given(st.integers(1, 69), st.lists(MESSAGES, min_size=5, max_size=5))
@settings(max_examples=300)
def test_messages_that_ignore_the_answers_win_a_sixth_at_most(
    first: int, messages: list[str]
) -> None:
    assert sum(rewards(first, messages)) <= HigherLower.GUESSES
    # Five different guesses win this many.
    different = [str(first + 3 * number) for number in range(HigherLower.GUESSES)]
    assert sum(rewards(first, different)) == HigherLower.GUESSES


def test_halving_wins_every_game_as_it_is_played_and_as_it_is_scored() -> None:
    tasks = [coordinates(SPEC, TRAIN_SEED_MIN + seed) for seed in range(200)]
    with HereWorker(GAMES_1) as worker:
        firsts = worker.questions(tasks)
        assert len(set(firsts)) > 30, "an evaluation in the lab wants different ones"
        games = {
            task: (tuple(map(int, re.findall(r"\d+", text)[:2])), ())
            for task, text in zip(tasks, firsts, strict=True)
        }
        won: list[ScoreRequest] = []
        for _ in range(SPEC.max_turns):
            requested = [
                PlayRequest(task=task, messages=(*replied, str((low + high) // 2)))
                for task, ((low, high), replied) in games.items()
            ]
            for one, play in zip(requested, worker.play(requested), strict=True):
                (low, high), _ = games.pop(one.task)
                if play.done:
                    assert play.reward == 1.0
                    text = join_messages(one.messages)
                    won.append(ScoreRequest(task=one.task, text=text, finish_reason=STOP))
                else:
                    guess, is_higher = int(one.messages[-1]), play.observations[-1] == "Higher."
                    left = (guess + 1, high) if is_higher else (low, guess - 1)
                    games[one.task] = left, one.messages
        assert len(won) == len(tasks) and not games
        assert {result.reward for result in worker.score(won)} == {1.0}


@pytest.mark.parametrize("message", ["", "x", "-3", "3.0", "٣", "12345", "1 2"])
def test_what_is_no_number_costs_a_guess(message: str) -> None:
    game = game_of(1, 5)
    assert [game.step(message) for _ in range(5)] == [
        *[("Not a number.", 0.0, False)] * 4,
        ("Wrong. It was 6.", 0.0, True),
    ]
    assert game_of(1, 5).step(" 006\n") == ("Right!", 1.0, True)


def test_a_swarm_of_these_needs_no_file_and_a_newer_game_is_ignored() -> None:
    manifest = make_manifest("mine", starting_families("games-1"))
    assert specs_of(manifest) == GAMES_1
    with pytest.raises(NewerFamilyError, match="unknown game 'chess'"):
        replace(SPEC, config={**SPEC.config, "game": "chess"})


@pytest.mark.parametrize("name", BUILTIN_GAMES)
def test_a_game_repeats_itself_for_any_moves(name: str) -> None:
    rng = random.Random(1)
    for seed in range(200):
        replied = [rng.choice(["", "é", str(rng.randint(0, 99))]) for _ in range(5)]
        played = []
        for _ in range(2):
            game = BUILTIN_GAMES[name]()
            played.append([game.reset(seed), *(game.step(message) for message in replied)])
            random.seed(rng.random())
        assert played[0] == played[1]

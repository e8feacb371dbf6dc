"""Forged and honest games by the ten thousand: each earns exactly its own replay's reward."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shoal_tasks.families import TRAIN_SEED_MIN, coordinates
from shoal_tasks.turns import SEPARATOR, join_messages, split_messages
from shoal_tasks.types import ScoreRequest
from shoal_tasks.worker.environment import EnvironmentTasks
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import FinishReason
from tests.tasks.games import game_family, local_games

NUM_CASES = 10_000
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH
MAX_TURNS = 5
ODD = ("", " ", "\n", "٣", "²", "é☃", "\U0001f600", "\r\x1b[31m", "[1]", "0", "-1", "9" * 5000)


def games(folder: Path) -> EnvironmentTasks:
    return local_games(game_family(folder, max_turns=MAX_TURNS), item_seconds=5.0)


class Referee:
    """An independent implementation of the game and its rules."""

    def __init__(self, secret: int) -> None:
        self._secret = secret

    def earned(self, messages: tuple[str, ...], finish: FinishReason) -> float:
        total, over = 0.0, False
        if len(messages) > MAX_TURNS:
            return 0.0
        for number, message in enumerate(messages, start=1):
            if over:
                return 0.0
            text = message.strip()
            if text == str(self._secret):
                total, over = total + 1, True
            elif text.isascii() and text.isdigit():
                total += 0.1
            over = over or number == 6
        return min(1.0, total) if over or finish is LENGTH else 0.0


def secret_of(tasks: EnvironmentTasks, seed: int) -> int:
    """Return the number to be guessed, found by trying."""
    return next(n for n in range(1, 7) if tasks.play(seed, 0, [str(n)]).done)


def honest(rng: random.Random, secret: int) -> tuple[tuple[str, ...], FinishReason]:
    """Return a game as a policy plays it, up to its end or to the last turn."""
    messages: list[str] = []
    while len(messages) < MAX_TURNS:
        messages.append(rng.choice([str(rng.randint(1, 6)), rng.choice(ODD), "I say 3"]))
        if messages[-1].strip() == str(secret):
            return tuple(messages), STOP
        if rng.random() < 0.05:
            break  # a message truncated by the token limit
    return tuple(messages), LENGTH


def forged(
    rng: random.Random, messages: tuple[str, ...], finish: FinishReason
) -> tuple[str, FinishReason]:
    """Return a completion that differs from the played game."""
    replied = list(messages)
    for _ in range(rng.randint(1, 3)):
        match rng.randrange(8):
            case 0:
                del replied[rng.randrange(len(replied)) :]
            case 1:
                replied += [rng.choice([*ODD, "1", "6"]) for _ in range(rng.randint(1, 300))]
            case 2:
                rng.shuffle(replied)
            case 3:
                replied.insert(rng.randint(0, len(replied)), str(rng.randint(1, 6)))
            case 4:
                finish = LENGTH if finish is STOP else STOP
            case 5:
                replied = [str(number) for number in range(1, 7)][: rng.randint(1, 6)]
            case 6:
                replied = [
                    "".join(chr(rng.randrange(1, 0xD800)) for _ in range(rng.randint(0, 40)))
                ]
            case _:
                replied.append(SEPARATOR * rng.randint(0, 20))
        replied = replied or [""]
    return join_messages(replied), finish


@pytest.mark.parametrize("kind", ["honest", "forged"])
def test_games_earn_what_a_second_referee_gives(tmp_path: Path, kind: str) -> None:
    tasks, rng = games(tmp_path), random.Random(7)
    secrets = {seed: secret_of(tasks, seed) for seed in range(TRAIN_SEED_MIN, TRAIN_SEED_MIN + 60)}
    for _ in range(NUM_CASES):
        seed = rng.choice(list(secrets))
        messages, finish = honest(rng, secrets[seed])
        text = join_messages(messages)
        if kind == "forged":
            text, finish = forged(rng, messages, finish)
            seed = rng.choice([seed, rng.choice(list(secrets))])  # or another seed's
        expected = Referee(secrets[seed]).earned(split_messages(text), finish)
        assert tasks.score(seed, 0, text, finish) == pytest.approx(expected), (text, finish)


def test_the_sandboxed_worker_gives_the_same_in_any_order(tmp_path: Path) -> None:
    tasks, rng = games(tmp_path), random.Random(9)
    requested = []
    for number in range(1000):
        text, finish = forged(rng, *honest(rng, rng.randint(1, 6)))
        task = coordinates(tasks.spec, TRAIN_SEED_MIN + number % 50)
        requested.append(ScoreRequest(task=task, text=text, finish_reason=finish))
    mixed = rng.sample(requested, len(requested))
    with SyncTaskWorker([tasks.spec]) as worker:
        found = dict(zip(mixed, worker.score(mixed), strict=True))
    for one in requested:
        assert not found[one].crashed and not found[one].timed_out
        assert found[one].reward == tasks.score(one.task.seed, 0, one.text, one.finish_reason)

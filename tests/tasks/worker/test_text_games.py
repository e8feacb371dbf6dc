"""TextArena's games: each listed one is deterministic, and a missing library is reported."""

from __future__ import annotations

import importlib.util
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from shoal_tasks.errors import FamilyError
from shoal_tasks.families import TRAIN_SEED_MIN, coordinates
from shoal_tasks.swarm import specs_of, starting_families
from shoal_tasks.task_file import load_task_file
from shoal_tasks.text_games import GAMES, TEXT_GAMES, text_game
from shoal_tasks.turns import join_messages
from shoal_tasks.types import PlayRequest
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import make_manifest
from tests.support.task_files import score_of
from tests.tasks.here import HereWorker

IS_INSTALLED = importlib.util.find_spec("textarena") is not None
needs_games = pytest.mark.skipif(not IS_INSTALLED, reason="comes with the extra `games`")
NUM_GAMES = 8
WORDS = ("up", "down", "left", "right", "hit", "stand", "continue", "accept", "red")


@pytest.mark.slow
@needs_games
def test_every_listed_game_replays_equal_in_another_process_and_order() -> None:
    specs = [text_game(game, game) for game in TEXT_GAMES]
    rng = random.Random(1)
    played: list[PlayRequest] = []
    with SyncTaskWorker(specs) as worker:
        for spec in specs:
            texts = worker.questions(
                [coordinates(spec, TRAIN_SEED_MIN + seed) for seed in range(NUM_GAMES)]
            )
            # A game without variation could not be evaluated on.
            assert len(set(texts)) > 1 or spec.name.startswith(
                ("Bandit", "Guess", "Master", "Mine")
            )
            for seed, text in enumerate(texts):
                moves = [*re.findall(r"\[[^\[\]]{1,12}\]", text), *WORDS]
                replied = [
                    rng.choice([*moves, str(rng.randint(1, 20)), "3 1", "1 2 3 4"])
                    for _ in range(rng.randint(1, spec.max_turns))
                ]
                task = coordinates(spec, TRAIN_SEED_MIN + seed)
                played.append(PlayRequest(task=task, messages=tuple(replied)))
        first = worker.play(played)
        assert worker.num_restarts == 0 and not any(play.error for play in first)
    with HereWorker(specs) as other:
        mixed = rng.sample(played, len(played))
        again = dict(zip(mixed, other.play(mixed), strict=True))
    assert [again[one] for one in played] == first


@needs_games
def test_one_of_the_numbers_wins_and_wins_by_score_too() -> None:
    spec = text_game("secretary", "Secretary-v0")
    task = coordinates(spec, TRAIN_SEED_MIN)
    tries = [("continue",) * skipped + ("accept",) for skipped in range(5)]
    with HereWorker([spec]) as worker:
        plays = worker.play([PlayRequest(task=task, messages=one) for one in tries])
        scored = worker.score([score_of(task, join_messages(one)) for one in tries])
    rewards = [play.reward for play in plays]
    assert rewards == [result.reward for result in scored]
    assert set(rewards) <= {0.0, 1.0} and sum(rewards) >= 1


def test_a_task_file_names_one_and_a_swarm_finds_it_again(tmp_path: Path) -> None:
    path = tmp_path / "lake.toml"
    path.write_text('name = "lake"\nenvironment = "textarena:FrozenLake-v0"\nmax_turns = 9\n')
    spec = load_task_file(path)
    assert (spec.is_environment, spec.max_turns, spec.is_of_a_file) == (True, 9, False)
    path.write_text('name = "lake"\nenvironment = "textarena:FrozenLake-v0"\n')
    assert load_task_file(path).max_turns == TEXT_GAMES["FrozenLake-v0"]
    path.write_text('name = "lake"\nenvironment = "textarena:Chess-v0"\n')
    with pytest.raises(FamilyError, match="unknown game textarena:Chess-v0; known are 2048"):
        load_task_file(path)


def test_a_missing_library_is_reported_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = make_manifest("mine", starting_families("games"))
    monkeypatch.setattr("shoal_tasks.swarm.installed_version", lambda _verifier: None)
    with pytest.raises(ManifestError, match=r"needs textarena 0\.7\.4 .*pip install 'shoal\[games"):
        specs_of(manifest)


def test_a_worker_without_this_version_of_the_library_says_so() -> None:
    """Also where the library is installed: the family needs a version that does not exist."""
    with pytest.raises(FamilyError, match=r"pip install 'shoal\[games"):
        HereWorker([replace(GAMES[0], verifier_version="0.0.0")])

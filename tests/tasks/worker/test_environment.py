"""Environments in Python files: played, scored by replay, and refused if unusable."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio

from shoal_tasks.errors import FamilyError, TaskError
from shoal_tasks.families import EASY, TRAIN_SEED_MIN, coordinates, example_coordinates
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import specs_of, starting_families
from shoal_tasks.task_file import load_task_file
from shoal_tasks.turns import MAX_TRANSCRIPT_CHARS, join_messages
from shoal_tasks.types import Play, PlayRequest, ScoreRequest, ScoreResult, Split, TaskCoordinates
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_tasks.worker.trio_client import TrioTaskWorker as TrioWorker
from shoal_tasks.worker.user_code import CHECK_EVERY, UserCodeError
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import make_manifest
from shoal_wire.types import FinishReason
from tests.support.task_files import score_of
from tests.tasks.games import GUESS, game_family, game_file, local_games
from tests.tasks.here import HereWorker

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH
SEED = TRAIN_SEED_MIN
HEAD = "class Game:\n    def reset(self, seed): return 'go'\n"


def ask(spec: FamilySpec, *messages: str, seed: int = SEED) -> PlayRequest:
    return PlayRequest(task=coordinates(spec, seed), messages=messages)


def completion(task: TaskCoordinates, *messages: str, finish: FinishReason = STOP) -> ScoreRequest:
    return score_of(task, join_messages(messages), finish)


def won(worker: SyncTaskWorker, spec: FamilySpec, seed: int = SEED) -> tuple[str, ...]:
    """Messages that end the game by guessing from below."""
    for last in range(1, 7):
        messages = tuple(map(str, range(1, last + 1)))
        (play,) = worker.play([ask(spec, *messages, seed=seed)])
        if play.done:
            return messages
    raise AssertionError("no number was right")


def test_a_game_is_played_message_by_message(tmp_path: Path) -> None:
    spec = game_family(tmp_path)
    with HereWorker([spec]) as worker:
        assert worker.questions([coordinates(spec, SEED)]) == ["Guess a number from 1 to 6."]
        assert worker.play([ask(spec)]) == [Play(observations=(), done=False, reward=0.0)]
        messages = won(worker, spec)
        seen = ("It is higher.",) * (len(messages) - 1)
        reward = min(1.0, 1 + 0.1 * len(seen))
        whole = Play(observations=(*seen, "Right!"), done=True, reward=reward)
        over = Play(observations=(*seen, "Right!"), done=True, reward=0.0)
        assert worker.play([ask(spec, *messages), ask(spec, *messages, "1")]) == [whole, over]


def test_a_completion_earns_what_its_replay_gives(tmp_path: Path) -> None:
    spec = game_family(tmp_path)
    task = coordinates(spec, SEED)
    with HereWorker([spec]) as worker:
        messages = won(worker, spec)
        requested = {
            completion(task, *messages): 1.0,
            completion(task, *messages, finish=LENGTH): 1.0,
            completion(task, *messages, "1"): 0.0,
            completion(task, *messages, "1", finish=LENGTH): 0.0,
            completion(task, "x", "7", finish=LENGTH): 0.1,
            completion(task, "x", "7"): 0.0,
            completion(task, *"777777"): 0.6,
            completion(task, *"7777777"): 0.0,
            completion(task, *"7777777", finish=LENGTH): 0.0,
        }
        found = [result.reward for result in worker.score(list(requested))]
        assert found == pytest.approx(list(requested.values()))


def test_a_game_has_so_many_turns_and_no_more(tmp_path: Path) -> None:
    games = local_games(game_family(tmp_path, max_turns=2))
    assert games.score(SEED, 0, join_messages("77"), LENGTH) == 0.2
    assert games.score(SEED, 0, join_messages("777"), LENGTH) == 0.0
    assert games.play(SEED, 0, "777").error == "a game has at most 2 turns"


def test_the_reward_range_is_mapped(tmp_path: Path) -> None:
    games = local_games(game_family(tmp_path, reward_range=[-1, 1]))
    assert games.score(SEED, 0, "x", LENGTH) == 0.5


def test_the_nodes_client_plays_too(tmp_path: Path) -> None:
    spec = game_family(tmp_path)

    async def main() -> None:
        worker = TrioWorker([spec])
        async with trio.open_nursery() as nursery:
            await nursery.start(worker.run)
            (play,) = await worker.play([ask(spec, "x")])
            assert play.observations == ("That is no number.",)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_swarm_that_is_started_with_it_finds_it_by_its_bytes(tmp_path: Path) -> None:
    files = [str(game_file(tmp_path))]
    manifest = make_manifest("mine", starting_families("easy", files))
    spec = specs_of(manifest, files)[-1]
    assert spec.is_environment and spec.max_turns == 8
    assert spec.path == str(tmp_path / "game.py")
    # Without the file a peer still joins, and uses the other families.
    assert len(specs_of(manifest)) == len(EASY)
    other = game_family(tmp_path, f"{GUESS}\n")
    assert other.digest != spec.digest
    with pytest.raises(FamilyError, match=r"game\.py is not the swarm's file"):
        HereWorker([spec])  # the file has changed since
    with pytest.raises(ManifestError, match="needs the file of 'guess'"):
        specs_of(make_manifest("mine", starting_families("none", files)))


def test_one_game_in_eight_is_held_out_though_all_begin_alike(tmp_path: Path) -> None:
    spec = game_family(tmp_path)
    with HereWorker([spec]) as worker:
        parts = worker.parts([coordinates(spec, seed) for seed in range(2000)])
        assert 200 < parts.count(Split.HELD_OUT) < 300
        drawn = worker.draw(random.Random(1), 50)
        assert set(worker.parts([task for task, _ in drawn])) == {Split.TRAINING}
        assert len(worker.held_out(8)) == 8
    assert example_coordinates(spec, 4) == []


def test_unseeded_chance_repeats_itself_too(tmp_path: Path) -> None:
    source = (
        "import random\nclass Game:\n"
        "    def reset(self, seed): return str(random.random())\n"
        "    def step(self, message): return str(random.random()), random.random(), False\n"
    )
    games = local_games(game_family(tmp_path, source))
    first = games.play(SEED, 0, ["a", "b"])
    games.play(SEED + 1, 0, ["a"])
    assert games.play(SEED, 0, ["a", "b"]) == first
    assert games.play(SEED, 0, ["a"]).observations == first.observations[:1]


STEP = "    def step(self, message): return 'x', 0, False\n"


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("class Game:\n", r"game\.py, line 1: "),
        ("x = 1\n", r"has no class 'Game'; set class = "),
        (HEAD, "Game has no method step"),
        ("raise OSError('no')\n", "line 1: OSError: no"),
        (f"import no_such_thing\n{HEAD}{STEP}", "cannot import no_such_thing"),
        (f"{HEAD}    def step(self, message): return 1\n", r"step must return \(observation"),
        (f"{HEAD}    def step(self, message): return 'x', 'y', 0\n", "step must return"),
        (f"{HEAD}    def step(self, message): return 5, 0, 0\n", "must be a str, not int"),
        (f"{HEAD}    def step(self, m): return 'x', float('nan'), 0\n", "a reward of nan"),
        (f"{HEAD}    def step(self, m): return 'x', 1e300, 0\n", "a reward of 1e"),
        (f"{HEAD}    def step(self, m): return 'x' * 99999, 0, 0\n", "observations exceed 65536"),
        (f"{HEAD}    def step(self, m): return m, int(m), 0\n", "line 3: ValueError"),
        (f"import sys\n{HEAD}    def step(self, m): sys.exit()\n", "line 4: SystemExit"),
        (f"{HEAD}    def step(self, m):\n        while True: pass\n", "processor time"),
        (
            f"{HEAD}    def step(self, m):\n        while True:\n            try:\n"
            "                while True: pass\n            except BaseException:\n"
            "                return 'x', 0, False\n",
            "processor time",
        ),
        (
            f"import time\n{HEAD}    def step(self, m): return str(time.time_ns()), 0, 0\n",
            "is not deterministic: two replays differed in turn 1",
        ),
        (
            "import os\nclass Game:\n"
            f"    def reset(self, seed): return os.urandom(4).hex()\n{STEP}",
            "differed in the first observation",
        ),
        (
            f"N = []\n{HEAD}    def step(self, m):\n        N.append(m)\n"
            "        return 'x', 0, len(N) > 20\n",
            "is not deterministic: two replays differed in turn",
        ),
        (
            f"import random\nCHANCE = random.Random(3)\n{HEAD}"
            "    def step(self, m): return 'x', CHANCE.random(), False\n",
            "is not deterministic: two replays differed in turn 1",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, source: str, cause: str
) -> None:
    spec = game_family(tmp_path, source)
    with pytest.raises(UserCodeError, match=cause) as caught:
        local_games(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"max_turns": 0}, "max_turns from 1 to 256"),
        ({"reward_range": [1, 0]}, "reward_range"),
        ({"class": "a b"}, "class's name"),
        ({"rows": "rows.jsonl"}, "an environment has no rows"),
        ({"environment": "nope.py"}, "nope.py"),
    ],
)
def test_a_task_file_says_what_is_wrong(
    tmp_path: Path, fields: dict[str, object], cause: str
) -> None:
    with pytest.raises(FamilyError, match=cause):
        game_family(tmp_path, **fields)


def test_keys_of_environments_need_one(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('name = "x"\nrows = "r.jsonl"\nmax_turns = 3\n')
    with pytest.raises(FamilyError, match="max_turns needs an environment"):
        load_task_file(path)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("return open('/etc/passwd').read(), 0, True", "line 3: "),
        ("import os; os.fork(); return 'x', 0, True", r"line 3: the sandbox refuses another pr"),
        ("import socket; socket.socket(); return 'x', 0, True", "the sandbox refuses the network"),
        (
            "\n        try: return open('/etc/passwd').read(), 0, True\n"
            "        except Exception: return 'x', 1, True",
            "line 4: the sandbox refuses open: '/etc/passwd'",
        ),
        ("return len('x' * (1 << 40)), 0, True", "more memory than an item may"),
    ],
)
def test_the_sandbox_holds_environments_too(tmp_path: Path, body: str, cause: str) -> None:
    spec = game_family(tmp_path, f"{HEAD}    def step(self, m): {body}\n")
    with pytest.raises(TaskError, match=cause):
        SyncTaskWorker([spec]).start()


def test_a_game_that_changes_later_is_found_and_its_family_refused(tmp_path: Path) -> None:
    source = (
        f"N = []\n{HEAD}    def step(self, m):\n        N.append(1)\n"
        "        return 'x', float(len(N) > 400 and len(N) % 2), False\n"
    )
    games = local_games(game_family(tmp_path, source))
    with pytest.raises(UserCodeError, match="two replays differed in turn 1"):
        for _ in range(400 + 2 * CHECK_EVERY):
            games.score(SEED, 0, "a", LENGTH)


def quick(spec: FamilySpec, *requests: ScoreRequest) -> list[ScoreResult]:
    limits = WorkerLimits(item_cpu_seconds=0.2, request_timeout_seconds=5.0, memory_bytes=128 << 20)
    with SyncTaskWorker([spec], limits=limits) as worker:
        return worker.score(requests)


@pytest.mark.slow
def test_what_fails_later_costs_the_completion_alone(tmp_path: Path) -> None:
    source = (
        f"import os, time\nKEPT = []\n{HEAD}    def step(self, m):\n"
        "        if m == 'raise': raise OSError('no')\n"
        "        if m == 'loop':\n            while True: pass\n"
        "        if m == 'exit': os._exit(0)\n"
        "        if m == 'fork': os.fork()\n"
        "        if m == 'grow':\n            while True: KEPT.append('x' * (1 << 24))\n"
        f"        if m == 'talk': return 'x' * {MAX_TRANSCRIPT_CHARS}, 1, True\n"
        "        return 'x', 1, True\n"
    )
    spec = game_family(tmp_path, source)
    task = coordinates(spec, SEED)
    bad = ("raise", "loop", "exit", "fork", "grow", "talk")
    found = quick(spec, *(completion(task, one) for word in bad for one in (word, f"not {word}")))
    assert [result.reward for result in found] == [0.0, 1.0] * len(bad)
    assert found[0].error.endswith("game.py, line 6: OSError: no")
    assert found[2].timed_out and found[4].crashed


@pytest.mark.slow
def test_memory_of_earlier_games_costs_no_reward(tmp_path: Path) -> None:
    source = (
        f"KEPT = []\n{HEAD}    def step(self, m):\n        KEPT.append('x' * (1 << 23))\n"
        "        return 'x', 1, True\n"
    )
    spec = game_family(tmp_path, source)
    task = coordinates(spec, SEED)
    found = quick(spec, *(completion(task, str(number)) for number in range(24)))
    assert [result.reward for result in found] == [1.0] * 24

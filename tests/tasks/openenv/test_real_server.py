"""The package `openenv` itself as the server: three environments on its interfaces.

It installs some fifty packages (gradio, fastmcp, openai), so the gate does not have it. Name a
Python that does: SHOAL_OPENENV_PYTHON=…/bin/python, with `openenv==0.10.0` in its own environment.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_tasks.errors import ServerUnavailable
from shoal_tasks.families import TRAIN_SEED_MIN, coordinates
from shoal_tasks.openenv.address import parse_address
from shoal_tasks.openenv.connection import ResolvedServer, get_json
from shoal_tasks.openenv.identity import NOT_AN_ACTION
from shoal_tasks.spec import FamilySpec
from shoal_tasks.turns import join_messages
from shoal_tasks.types import PlayRequest, ScoreRequest
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import FinishReason
from tests.tasks.openenv.test_server_family import family

PYTHON = os.environ.get("SHOAL_OPENENV_PYTHON") or (
    sys.executable if importlib.util.find_spec("openenv") else ""
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="SHOAL_OPENENV_PYTHON names no Python with openenv"),
]


@contextlib.contextmanager
def serving(name: str) -> Iterator[str]:
    """Serve one of `real_server`'s environments until the block ends; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"ws://127.0.0.1:{port}"
    script = Path(__file__).with_name("real_server.py")
    process = subprocess.Popen([PYTHON, str(script), name, str(port)])
    try:
        while process.poll() is None:
            with contextlib.suppress(ServerUnavailable):
                get_json(ResolvedServer(parse_address(address), address), "/health")
                break
            time.sleep(0.2)
        yield address
    finally:
        process.kill()
        process.wait()


def play(worker: SyncTaskWorker, spec: FamilySpec, seed: int, *messages: str) -> tuple[str, ...]:
    (played,) = worker.play([PlayRequest(task=coordinates(spec, seed), messages=messages)])
    assert played.error == ""
    return played.observations


def test_a_number_is_found_by_halving(tmp_path: Path) -> None:
    with serving("higher-lower") as address:
        spec = family(tmp_path, address, max_turns=5)
        with SyncTaskWorker([spec]) as worker:
            for task, question in worker.draw(random.Random(1), 4):
                low, high = int(question.split()[4]), int(question.split()[6].strip(","))
                replied: list[str] = []
                seen = ""
                while seen != "Right!":
                    middle = (low + high) // 2
                    replied.append(str(middle))
                    seen = play(worker, spec, task.seed, *replied)[-1]
                    low, high = (middle + 1, high) if seen == "Higher." else (low, middle - 1)
                text, stop = join_messages(replied), FinishReason.STOP
                (score,) = worker.score([ScoreRequest(task=task, text=text, finish_reason=stop)])
                assert score.reward == 1.0


def test_a_game_of_many_turns_with_actions_of_two_fields(tmp_path: Path) -> None:
    chance = random.Random(2)
    messages = [
        f'{{"row": {chance.randrange(3)}, "column": {chance.randrange(3)}}}' for _ in range(40)
    ]
    with serving("lights") as address:
        spec = family(tmp_path, address, max_turns=64)
        with SyncTaskWorker([spec]) as worker:
            first = play(worker, spec, TRAIN_SEED_MIN, *messages)
            assert first == play(worker, spec, TRAIN_SEED_MIN, *messages)
            assert first[0].startswith('{"board":["') and len(first) > 10
            bad = play(worker, spec, TRAIN_SEED_MIN, "up", '{"row": "x"}', '{"row": 1}')
            assert bad == (NOT_AN_ACTION,) * 3


def test_a_server_with_a_single_session_whose_environment_raises(tmp_path: Path) -> None:
    with serving("guess") as address:
        spec = family(tmp_path, address, max_turns=1)
        task = coordinates(spec, TRAIN_SEED_MIN)
        with SyncTaskWorker([spec]) as node, SyncTaskWorker([spec]) as trainer:
            (question,) = node.questions([task])
            word = question.removeprefix("Say ").removesuffix(".")
            requested = [
                ScoreRequest(task=task, text=text, finish_reason=FinishReason.STOP)
                for text in (word, "whale")
            ]
            assert [one.reward for one in trainer.score(requested)] == [1.0, 0.0]
            (raised,) = node.play([PlayRequest(task=task, messages=("",))])
            assert raised.error == "the environment raised: no guess was sent"

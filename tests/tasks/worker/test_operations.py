"""Valid requests to the worker, and validation of its replies."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from shoal_tasks.errors import UnknownFamily, WorkerProtocolError
from shoal_tasks.families import EASY, TRAIN_SEED_MIN, coordinates
from shoal_tasks.spec import OPENENV, JsonValue, environment
from shoal_tasks.types import Play, ScoreRequest, Split, TaskCoordinates, TaskItem
from shoal_tasks.worker.batching import Operation, WorkerCall, run_batched
from shoal_tasks.worker.frames import Message
from shoal_tasks.worker.operations import (
    ConfiguredFamilies,
    item_operation,
    read_item,
    read_play,
    read_score,
    score_operation,
)
from shoal_tasks.worker.worker_session import cpu_seconds
from shoal_wire.types import FinishReason
from tests.tasks.families import JUDGED


@pytest.mark.parametrize(
    "row",
    [
        None,
        {},
        {"reward": "1"},
        {"reward": True},
        {"reward": 1.01},
        {"reward": float("nan")},
        {"reward": float("inf")},
        {"reward": 10**400},
    ],
)
def test_a_worker_cannot_hand_out_rewards_outside_the_range(row: object) -> None:
    with pytest.raises(WorkerProtocolError):
        read_score(row)
    with pytest.raises(WorkerProtocolError):
        read_play({"observations": [], "error": "", **row} if isinstance(row, dict) else row)


@pytest.mark.parametrize(
    "odd",
    [
        {"question": 3},
        {"question": "x" * 300_000},
        {"question": "\ud800"},
        {"part": "mine"},
        {"part": []},
        {"part": None},
        {"answer": 7},
        {"example": ["7"]},
    ],
)
def test_a_worker_cannot_hand_out_odd_tasks(odd: dict[str, object]) -> None:
    good = {"question": "?", "answer": None, "example": "7", "part": "training"}
    assert read_item(good) == TaskItem(question="?", answer=None, example="7", part=Split.TRAINING)
    with pytest.raises(WorkerProtocolError):
        read_item({**good, **odd})
    with pytest.raises(WorkerProtocolError):
        read_item([odd])


@pytest.mark.parametrize(
    "odd", [{"observations": "x"}, {"observations": [1]}, {"error": None}, {"reward": 2}]
)
def test_a_worker_cannot_hand_out_odd_games(odd: dict[str, object]) -> None:
    good = {"observations": ["x"], "done": True, "reward": 1, "error": ""}
    assert read_play(good) == Play(observations=("x",), done=True, reward=1.0)
    with pytest.raises(WorkerProtocolError):
        read_play({**good, **odd})
    with pytest.raises(WorkerProtocolError):
        read_play({**good, "observations": ["x" * 65, "y" * 65536]})


def first_message(operation: Operation[Any, Any], items: list[Any]) -> Message:
    """Return the first request to the worker."""
    requested: list[Message] = []

    async def ask(call: WorkerCall[Any]) -> list[Any]:
        requested.append(call.message)
        return []

    trio.run(run_batched, ask, operation, items)
    return requested[0]


def test_coordinates_are_checked_before_they_travel() -> None:
    families = ConfiguredFamilies(EASY)
    good = coordinates(EASY[0], TRAIN_SEED_MIN)
    assert families.row(good) == {"family": EASY[0].name, "seed": TRAIN_SEED_MIN, "index": 0}
    for family, digest in (("unknown", good.config_digest), (EASY[1].name, good.config_digest)):
        task = TaskCoordinates(family=family, config_digest=digest, seed=0, index=0)
        with pytest.raises(UnknownFamily):
            families.row(task)
    for seed, index in ((-1, 0), (1 << 31, 0), (0, -1), (0, 1 << 31)):
        with pytest.raises(ValueError, match="range"):
            families.row(coordinates(EASY[0], seed, index))
    with pytest.raises(ValueError, match="unique"):
        ConfiguredFamilies([EASY[0], EASY[0]])


def test_a_frame_has_as_many_items_as_its_worker_answers_in_time() -> None:
    sha: JsonValue = "0" * 64
    which: dict[str, JsonValue] = dict.fromkeys(("environment", "version"), "x")
    which |= dict.fromkeys(("schema_sha256", "games_sha256"), sha)
    served = environment(
        "guess", OPENENV, {**which, "max_turns": 8, "reward_range": [0, 1]}, path="ws://h:1"
    )
    families = ConfiguredFamilies([EASY[0], JUDGED, served])

    def first_frame(operation: Operation[Any, Any], items: list[Any]) -> int:
        rows: Any = first_message(operation, items)["items"]
        return len(rows)

    sizes = {}
    for spec in families.specs:
        tasks = [coordinates(spec, TRAIN_SEED_MIN + n) for n in range(100)]
        replied = [
            ScoreRequest(task=one, text="1", finish_reason=FinishReason.STOP) for one in tasks
        ]
        made = first_frame(item_operation(families), tasks)
        sizes[spec.name] = made, first_frame(score_operation(families), replied)
    assert sizes == {EASY[0].name: (64, 64), "prose": (64, 1), "guess": (8, 8)}


def test_a_text_beyond_the_wires_limit_never_reaches_a_frame() -> None:
    request = ScoreRequest(
        task=coordinates(EASY[0], 1), text="9" * (1 << 22), finish_reason=FinishReason.STOP
    )
    message = first_message(score_operation(ConfiguredFamilies(EASY)), [request])
    assert len(str(message)) < 1000


def test_any_number_of_processor_seconds_can_be_compared() -> None:
    assert cpu_seconds({"cpu_seconds": 10**400}) > 1e300
    assert cpu_seconds({"cpu_seconds": "all"}) == cpu_seconds({}) == 0.0

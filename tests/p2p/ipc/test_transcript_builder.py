"""Games as `debug rollouts` has them: both sides, replayed by the node's own worker when asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from shoal_base.bounded import FEW
from shoal_p2p.ipc import transcript_builder
from shoal_p2p.ipc.transcript_builder import TranscriptBuilder
from shoal_p2p.peers.outside import wall_ms
from shoal_tasks.errors import WorkerUnavailable
from shoal_tasks.families import EASY, TRAIN_SEED_MIN
from shoal_tasks.spec import FamilySpec
from shoal_tasks.turns import MAX_TURNS, SEPARATOR, join_messages
from shoal_wire.types import Completion, FinishReason, RolloutGroup
from tests.p2p.ipc.conftest import Debug
from tests.support import factories as make
from tests.support.doubles.worker import InstantWorker
from tests.support.running_node import RunningNode
from tests.tasks.games import game_family, game_file

FIRST = "Guess a number from 1 to 6."


def games(spec: FamilySpec, *texts: str, seed: int = TRAIN_SEED_MIN) -> RolloutGroup:
    """A group of games of one start."""
    return RolloutGroup(
        task=make.task_of(spec, seed, FIRST),
        completions=tuple(
            Completion(text=text, num_tokens=3, finish_reason=FinishReason.LENGTH) for text in texts
        ),
    )


@pytest.fixture
def spec(tmp_path: Path) -> FamilySpec:
    return game_family(tmp_path)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    folder = tmp_path_factory.mktemp("games")
    file = str(game_file(folder))
    with RunningNode(folder / "node", tasks=("easy", file)) as running:
        yield running


def test_a_game_is_shown_with_both_sides(node: RunningNode, tmp_path: Path, debug: Debug) -> None:
    spec = game_family(tmp_path)
    secret = next(
        n for n in range(1, 7) if _observations(node, spec, str(n))[0].startswith("Right")
    )
    right, wrong = str(secret), str(secret % 6 + 1)
    author = make.Author(node.node.member.manifest, now_ms=wall_ms())
    group = games(spec, join_messages([wrong, "what?", right]), join_messages([wrong, ""]))
    node.call(node.node.pool.keep_all, [author.sign(group)])
    (row,) = debug.shown(node, "rollouts", "--limit", "1")["rollouts"]
    assert row["question"] == FIRST
    first, second = (one["turns"] for one in row["completions"])
    side = "higher" if secret % 6 + 1 < secret else "lower"
    assert [(one["role"], one["text"]) for one in first] == [
        ("policy", wrong),
        ("environment", f"It is {side}."),
        ("policy", "what?"),
        ("environment", "That is no number."),
        ("policy", right),
        ("environment", "Right!"),
    ]
    assert [one["text"] for one in second if one["role"] == "policy"] == [wrong, ""]
    text = debug.text(node, "rollouts", "--limit", "1")
    assert f"1. > {wrong}\n" in text and f"It is {side}.\n" in text
    assert "\\x1e" not in text


def _observations(node: RunningNode, spec: FamilySpec, *messages: str) -> tuple[str, ...]:
    dialogue = TranscriptBuilder(node.node.member.worker, lambda: [spec])

    async def played() -> tuple[str, ...]:
        ((turns,),) = await dialogue.of([games(spec, join_messages(messages))])
        return tuple(one.text for one in turns or () if one.role == "environment")

    return node.call(played)


async def transcripts(worker: InstantWorker, spec: FamilySpec, *texts: str) -> list[Any]:
    (found,) = await TranscriptBuilder(worker, lambda: [spec]).of([games(spec, *texts)])
    return [one and [(turn.role, turn.text) for turn in one] for one in found]


async def test_a_worker_that_fails_or_takes_too_long_leaves_the_policys_side(
    spec: FamilySpec, worker_double: InstantWorker, autojump_clock: trio.testing.MockClock
) -> None:
    alone = [[("policy", "1"), ("policy", "2")]]
    worker_double.gate = trio.Event()
    assert await transcripts(worker_double, spec, "1\x1e2") == alone
    worker_double.gate.set()
    assert len((await transcripts(worker_double, spec, "1\x1e2"))[0]) == 4
    worker_double.error = WorkerUnavailable("gone")
    assert await transcripts(worker_double, spec, "1\x1e2") == alone


async def test_the_bounds_hold_and_what_is_newest_is_replayed(
    spec: FamilySpec, worker_double: InstantWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = await transcripts(worker_double, spec, *["1"] * (FEW + 3))
    assert [len(one) for one in many] == [1] * 3 + [2] * FEW
    monkeypatch.setattr(transcript_builder, "MAX_OBSERVED_CHARS", 5)
    assert [len(one) for one in await transcripts(worker_double, spec, "abc", "de", "fgh")] == [
        1,
        2,
        2,
    ]
    (flood,) = await transcripts(worker_double, spec, SEPARATOR * 32_000)
    assert sum(by == "policy" for by, _ in flood) == MAX_TURNS + 1


async def test_a_message_that_was_cut_is_not_answered(
    spec: FamilySpec, worker_double: InstantWorker
) -> None:
    assert await transcripts(worker_double, spec, "1\x1e2…") == [
        [("policy", "1"), ("environment", "1"), ("policy", "2…")]
    ]


async def test_what_is_no_game_has_no_turns(worker_double: InstantWorker) -> None:
    dialogue = TranscriptBuilder(worker_double, lambda: EASY)
    assert await dialogue.of([make.group(texts=["a\x1eb", "c"])]) == [[None, None]]

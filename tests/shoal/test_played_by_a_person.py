"""A person plays a game for the swarm: at a real node, for another, whose policy learns."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal_policy.node.link import NodeLink
from shoal_policy.tasks import TaskSource
from shoal_tasks.task_file import load_task_file
from shoal_tasks.turns import split_messages
from shoal_tasks.worker.sync import SyncTaskWorker
from tests.policy import training_cases as case
from tests.policy.round.test_games import fresh_policy, rounds
from tests.support.processes import wait_for
from tests.support.running_node import RunningNode
from tests.support.schemas import check
from tests.tasks.games import game_file

GAME = """
class Game:
    def reset(self, seed):
        self.left = 2
        return "say a"

    def step(self, message):
        self.left -= 1
        return f"{self.left} left", ("a" in message) / 2, self.left == 0
"""
TYPED = "a\na\n" + "b\na\n" + "b\n\n" + "\n"
"""A game that wins, one that half wins, one that is left, and the end of the group."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return game_file(tmp_path_factory.mktemp("game"), GAME, name="say", max_turns=3)


@pytest.fixture(scope="module")
def node(file: Path) -> Iterator[RunningNode]:
    with RunningNode(file.parent / "person", tasks=(str(file),)) as running:
        yield running


def answered(node: RunningNode, typed: str, *flags: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(typed))
        where = ["--data-dir", str(node.data_dir), "--family", "say"]
        return main(["answer", *where, "--count", "1", *flags])


def test_a_game_is_played_turn_by_turn(
    node: RunningNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(node, TYPED, "--json") == 0
    printed = capsys.readouterr()
    group = json.loads(printed.out)
    check("answer", group)
    assert [split_messages(text) for text in group["completions"]] == [
        ("a", "a"),
        ("b", "a"),
        ("b",),
    ]
    assert group["rewards"] == [1.0, 0.5, 0.0]
    assert printed.err.count("say a") == 4 and printed.err.count("0 left") == 2
    assert "game left unfinished" in printed.err
    row = node.view("rollouts", limit=1)["rollouts"][0]
    finished = [one["finish_reason"] for one in row["completions"]]
    assert finished == ["stop", "stop", "length"]
    assert [turn["text"] for turn in row["completions"][0]["turns"]] == [
        "a",
        "1 left",
        "a",
        "0 left",
    ]


def test_a_start_may_be_passed_over_and_one_game_is_too_few(
    node: RunningNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(node, "\n") == 0
    assert "shared answers to 0 questions" in capsys.readouterr().out
    assert answered(node, "a\na\n" + "\n" + "b\nb\n\n") == 0
    shown = capsys.readouterr().out
    assert shown.count("2 games are needed") == 2
    assert "shared answers to 1 questions" in shown


def test_what_peers_would_refuse_is_reported_before_it_is_played(
    node: RunningNode, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = "a\x1ea\n" + "x" * 40_000 + "\n" + "a\na\n" + "b\nb\n\n"
    assert answered(node, typed, "--json") == 0
    printed = capsys.readouterr()
    assert printed.err.count("peers would refuse that") == 2
    assert json.loads(printed.out)["rewards"] == [1.0, 0.0]


def test_another_nodes_policy_learns_from_it(node: RunningNode, file: Path) -> None:
    """Over real connections: the person's node signs, the other validates, buffers and trains."""
    other = RunningNode(
        file.parent / "learner", tasks=("easy", str(file)), bootstrap=(node.address,)
    )
    spec = load_task_file(file)
    with other, SyncTaskWorker([spec]) as worker:
        wait_for(lambda: other.view("peers")["peers"], 30.0, "the person's node")
        assert answered(node, TYPED) == 0
        wait_for(lambda: other.node.recent.after(0, limit=1), 60.0, "the games of the person")
        policy = fresh_policy(seed=1)
        before = case.weights(policy)
        link = NodeLink(other.client())
        tasks = TaskSource(worker, [spec])
        outcome = rounds(policy, tasks, link, local=0, external=1).run_round(1, 0)
    assert outcome.record.groups_external == 1, str(outcome.record)
    assert outcome.record.reward_external == pytest.approx(0.5)
    assert outcome.stats.num_steps == 1
    assert not case.same_weights(before, case.weights(policy))

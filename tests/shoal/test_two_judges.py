"""Nodes whose judges disagree, and one without any: what each makes of one signed batch."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from shoal_ipc import messages as m
from shoal_p2p.peers.outside import wall_ms
from shoal_policy.tasks import TaskSource
from shoal_tasks.families import TRAIN_SEED_MIN
from shoal_tasks.task_file import load_task_file
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.verdict import Outcome, Reason
from tests.support import factories as make
from tests.support.running_node import RunningNode
from tests.support.task_files import task_file

JUDGES = {
    "a": "def reward(completions):\n    return [len(completions[0]) / 10]\n",
    "b": "def reward(completions):\n    return [1 - len(completions[0]) / 10]\n",
}
TEXTS = ("aa", "bbbbb", "cccccccc")


def with_judge(folder: Path, judge: str) -> Path:
    rows = [{"question": f"Write about {number}"} for number in range(9)]
    path = task_file(folder, "prose", rows, reward="judge.py", local=True)
    (folder / "judge.py").write_text(judge)
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Return the task files of two judges, by name."""
    return {name: with_judge(tmp_path / name, judge) for name, judge in JUDGES.items()}


@pytest.mark.slow
def test_what_a_node_shares_reaches_another_with_another_judge(
    files: dict[str, Path], tmp_path: Path
) -> None:
    """Before both have met, and afterwards."""
    spec = load_task_file(files["a"])
    tasks = [
        make.task_of(spec, seed, f"Write about {seed % 9}")
        for seed in (TRAIN_SEED_MIN, TRAIN_SEED_MIN + 1)
    ]
    with RunningNode(tmp_path / "one", tasks=("easy", str(files["a"]))) as one:
        sharing = one.client()
        sharing.call(make.publish([make.group(texts=TEXTS, of=tasks[0])]), m.PublishReply)
        other = RunningNode(
            tmp_path / "other", tasks=("easy", str(files["b"])), bootstrap=(one.address,)
        )
        with other:
            later = make.publish([make.group(texts=TEXTS, of=tasks[1])], key=b"later", round=2)
            sharing.call(later, m.PublishReply)
            drawing = other.client()
            found: set[int] = set()
            until = time.monotonic() + 60.0
            while len(found) < 2 and time.monotonic() < until:
                drawn = drawing.call(m.Sample(num_external=4), m.SampleReply).groups
                found |= {each.group.task.seed for each in drawn}
                time.sleep(0.1)
            assert found == {task.seed for task in tasks}
            drawing.close()
        sharing.close()


def test_each_node_ends_with_its_own_scores_and_no_peer_is_penalised(
    files: dict[str, Path], tmp_path: Path
) -> None:
    spec = load_task_file(files["a"])
    task = make.task_of(spec, TRAIN_SEED_MIN, f"Write about {TRAIN_SEED_MIN % 9}")
    own = RunningNode(tmp_path / "own", tasks=("games-1", str(files["b"])))
    with own:
        without = RunningNode(tmp_path / "without", bootstrap=(own.address,))
        with without:
            assert without.node.manifest.digest == own.node.manifest.digest
            author = make.Author(own.node.manifest, now_ms=wall_ms())
            raw = author.envelope(author.batch([make.group(texts=TEXTS, of=task)]))
            for node, reason in ((own, Reason.VALID), (without, Reason.UNKNOWN_FAMILY)):
                intake = node.node.member.intake
                verdict = node.call(intake.validate, raw, author.peer_id, author.peer_id)
                assert verdict.reason is reason and verdict.outcome is not Outcome.REJECT
            client = own.client()
            (drawn,) = client.call(m.Sample(num_external=4), m.SampleReply).groups
            group = drawn.group
            scores = {}
            for name, file in files.items():
                judged = load_task_file(file)
                with SyncTaskWorker([judged]) as worker:
                    tasks = TaskSource(worker, [judged])
                    (scores[name],) = tasks.rewards([(group.task, group.completions)])
            assert scores == {
                "a": pytest.approx([0.2, 0.5, 0.8]),
                "b": pytest.approx([0.8, 0.5, 0.2]),
            }
            report = m.GroupReport(
                group_id=drawn.group_id,
                publisher=drawn.publisher,
                rewards=tuple(scores["b"]),
            )
            assert client.call(m.Report(groups=(report,)), m.Ok).count == 1
            client.close()

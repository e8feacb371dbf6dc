"""`shoal debug` against a whole node: every view, for programs and for people."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal.debug.views import VIEWS, View
from shoal_ipc import messages as m
from shoal_ipc.answers.form import to_json
from shoal_ipc.answers.node import Status
from shoal_ipc.client import NodeRefused
from shoal_p2p.peers.outside import wall_ms
from shoal_tasks.families import PRESETS, TRAIN_SEED_MIN, coordinates
from shoal_wire.types import RolloutGroup
from shoal_wire.verdict import Reason, verdict
from tests.p2p.ipc.conftest import Debug
from tests.support import factories as make
from tests.support.running_node import RunningNode

GCD = next(spec for spec in PRESETS["easy"] if spec.generator == "gcd")
QUESTIONS = 3


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node without a trainer that has an own batch, another's batch, and some rewards."""
    with RunningNode(tmp_path_factory.mktemp("views") / "node") as running:
        client = running.client()
        own = [group(number) for number in range(QUESTIONS)]
        client.call(make.publish(own, key=b"own"), m.PublishReply)
        author = make.Author(running.node.member.manifest, now_ms=wall_ms())
        signed = author.sign(group(99))
        running.call(running.node.pool.keep_all, [signed])
        sampled = client.call(m.Sample(num_external=1), m.SampleReply).groups[0]
        report = m.GroupReport(
            group_id=sampled.group_id, publisher=sampled.publisher, rewards=(0.0, 1.0)
        )
        client.call(m.Report(groups=(report,)), m.Ok)
        status = {
            "state": "training",
            "round": 12,
            "reward_local": 0.25,
            "reward_initial": 0.125,
            "groups_external_used": 5,
        }
        client.call(m.TrainerStatus(json=json.dumps(status)), m.Ok)
        running.trainer = client  # type: ignore[attr-defined]
        yield running
        client.close()


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables fold long cells; what they say is tested here, not how they fold."""
    monkeypatch.setenv("COLUMNS", "300")


def group(number: int) -> RolloutGroup:
    at = coordinates(GCD, TRAIN_SEED_MIN + number)
    question = make.real_worker().questions([at])[0]
    return make.group(of=make.task(number, question=question), texts=("7", "[bold]8"))


def test_status_has_every_key_that_programs_count_on(node: RunningNode, debug: Debug) -> None:
    status = debug.shown(node, "status")
    assert status["peer_id"] == node.node.member.peer_id
    assert status["addresses"] == list(node.node.member.host.listen_addrs())
    assert status["uptime_s"] > 0
    assert (status["peers"], status["is_isolated"]) == (0, True)
    assert status["mesh"] == dict.fromkeys(node.node.member.manifest.topics(), 0)
    assert status["round"] == 12
    assert status["groups_published"] == QUESTIONS
    assert status["groups_received"] == 1
    assert status["groups_external_used"] == 5
    assert status["buffer"]["groups"] == 1
    assert status["buffer"]["bytes"] > 0
    assert status["buffer"]["capacity_groups"] == 4096
    assert status["buffer"]["capacity_bytes"] == 64 * 1024 * 1024
    assert {"evicted", "dropped"} <= set(status["buffer"])
    assert status["verdicts"] == {"accept": 0, "ignore": {}, "reject": {}}
    trainer = status["trainer"]
    assert (trainer["state"], trainer["round"], trainer["restarts"]) == ("training", 12, 0)
    assert trainer["reward_local"] == 0.25
    assert isinstance(trainer["pid"], int)
    assert status["outbox"]["unsent"] == 1
    cost = status["cost"]
    assert {name: bool(used) for name, used in cost["processes"].items()} == {
        "node": True,
        "worker": True,
        "trainer": True,
    }
    assert cost["bytes_in"] == cost["bytes_out"] == 0
    assert cost["disk_bytes"] > 0


def test_status_tells_a_person_that_it_is_alone(node: RunningNode, debug: Debug) -> None:
    output = debug.text(node, "status")
    assert node.node.member.peer_id in output
    assert "alone" in output
    assert "training" in output
    assert "0.250" in output
    assert re.search(r"in 0\.0 KB/s, out 0\.0 KB/s, measured over [\d.]+ \w+, node ", output), (
        output
    )
    assert "1 batches wait for a peer" in output


def test_the_buffer_by_publisher_and_draws_against_contributions(
    node: RunningNode, debug: Debug
) -> None:
    view = debug.shown(node, "buffer")
    rows = {row["is_local"]: row for row in view["publishers"]}
    own, peer = rows[True], rows[False]
    assert own["groups"] == view["local_groups"] == QUESTIONS
    assert own["oldest_s"] >= own["newest_s"] >= 0
    assert peer["groups"] == view["leased"] == 1
    assert (peer["received"], peer["sampled"], peer["reward_spread"]) == (1, 1, 1.0)
    assert "this node" in debug.text(node, "buffer")


def test_rollouts_without_their_texts(node: RunningNode) -> None:
    answer = node.call(node.node.views.by_name()["rollouts"], {"texts": False, "questions": False})
    assert len(answer.rollouts) == QUESTIONS + 1
    assert all(len(row.completions) == 2 for row in answer.rollouts)
    assert "text" not in to_json(answer)["rollouts"][0]["completions"][0]


def test_what_was_refused_and_what_to_do(node: RunningNode, debug: Debug) -> None:
    guard = node.node.member.guard
    eve, ann = make.fresh_identity().peer_id, make.fresh_identity().peer_id
    old = replace(verdict(Reason.TOO_OLD), family="gcd_easy")
    for _ in range(3):
        guard.refusals.note(old, signer=eve, forwarder=ann, at_ms=wall_ms() - 5000)
    (row,) = debug.shown(node, "refusals")["recent"]
    assert (row["reason"], row["kind"], row["count"]) == ("too_old", "ignore", 3)
    assert (row["signer"], row["forwarder"], row["family"]) == (eve, ann, "gcd_easy")
    output = debug.text(node, "refusals")
    assert re.search(f"older than the swarm keeps × 3 +{ann} +{eve} +gcd_easy", output)
    assert "→ nothing, if it is rare" in output


def test_who_it_is(node: RunningNode, debug: Debug) -> None:
    identity = debug.shown(node, "status")
    assert bytes.fromhex(identity["public_key"]) == node.node.member.host.identity.public_key_bytes
    assert identity["swarm"]["digest"] == node.node.member.manifest.digest.hex()
    assert identity["public_key"] in debug.text(node, "status")


def test_peers_of_a_node_alone(node: RunningNode, debug: Debug) -> None:
    assert debug.shown(node, "peers")["peers"] == []
    assert "peers: none" in debug.text(node, "peers")


def test_rollouts_show_question_answers_sender_and_reward(node: RunningNode, debug: Debug) -> None:
    rows = debug.shown(node, "rollouts")["rollouts"]
    assert [row["is_local"] for row in rows] == [True] * QUESTIONS + [False]
    theirs = rows[-1]
    at = coordinates(GCD, TRAIN_SEED_MIN + 99)
    assert theirs["question"] == make.real_worker().questions([at])[0]
    assert theirs["reward"] == 0.5
    assert [(c["text"], c["reward"]) for c in theirs["completions"]] == [
        ("7", 0.0),
        ("[bold]8", 1.0),
    ]
    assert rows[0]["reward"] is None
    assert len(debug.shown(node, "rollouts", "--limit", "2")["rollouts"]) == 2
    output = debug.text(node, "rollouts")
    assert "this node" in output
    # A completion's text is data, not markup.
    assert "[bold]8" in output


def test_views_work_while_the_trainer_is_away(node: RunningNode, debug: Debug) -> None:
    assert debug.shown(node, "status")["trainer"]["connected"]
    node.trainer.close()  # type: ignore[attr-defined]
    for _ in range(200):
        trainer = debug.shown(node, "status")["trainer"]
        if not trainer["connected"]:
            break
    assert trainer["state"] == "disabled"
    assert trainer["round"] == 12
    node.trainer = node.client()  # type: ignore[attr-defined] # for tests that run after this one
    assert node.trainer.ensure()  # type: ignore[attr-defined]


def test_a_view_that_a_node_does_not_have_is_exit_code_1(
    node: RunningNode, debug: Debug, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VIEWS, "dreams", View(Status))
    code, _, output = debug.run(node, "dreams")
    assert (code, "no view 'dreams'" in output) == (1, True)


def test_no_node_is_exit_code_3_and_a_hint_where_one_is(
    node: RunningNode, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = node.data_dir.parent / "elsewhere"
    assert main(["status", "--data-dir", str(empty)]) == 3
    error = capsys.readouterr().err
    assert f"no node is running in {empty}" in error
    assert str(node.data_dir) in error
    assert len(error.strip().splitlines()) == 1


def test_a_node_without_a_judge_says_so(node: RunningNode) -> None:
    with pytest.raises(NodeRefused, match="no judge"):
        node.trainer.call(m.JudgeAsk(), m.JudgeChallenge)  # type: ignore[attr-defined]


def test_the_last_numbers_of_a_node_that_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--last", "--data-dir", str(tmp_path)]) == 3
    assert "no node has left a status" in capsys.readouterr().err


def test_one_group_comes_with_the_right_answer_and_many_without(node: RunningNode) -> None:
    """By the node's own worker, one task at a time."""
    client = node.client(m.Role.INSPECTOR)
    author = make.Author(node.node.member.manifest, now_ms=wall_ms())
    node.call(node.node.pool.keep_all, [author.sign(group(77))])

    def rows(**options: Any) -> list[dict[str, Any]]:
        reply = client.call(
            m.Inspect(view="rollouts", options_json=json.dumps(options)), m.InspectReply
        )
        found: list[dict[str, Any]] = json.loads(reply.json)["rollouts"]
        return found

    many = rows()
    assert not any("expected" in row for row in many)
    (last,) = rows(group=many[-1]["group_id"])
    numbers = [int(word) for word in re.findall(r"\d+", last["question"])]
    assert last["expected"] == str(math.gcd(*numbers))
    assert "expected" not in rows(group=many[-1]["group_id"], questions=False)[0]
    client.close()

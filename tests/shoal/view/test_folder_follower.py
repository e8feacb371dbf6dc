"""Requests to the node of a folder: its views, last status and metrics."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shoal.view import folder_follower
from shoal.view.folder_follower import FolderFollower, LatestAnswers
from shoal.view.run import RunFile
from shoal_ipc import messages as m
from shoal_ipc.answers.doctor import Doctor
from shoal_ipc.answers.form import read
from shoal_ipc.answers.held_out import evaluation
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import Status
from shoal_ipc.answers.peer import Peers
from shoal_ipc.client import NodeClient, Ticket
from shoal_p2p.state_file import LAST_STATUS, STATE_FILE, write_state
from tests.shoal.view.node_answers import DOCTOR, LEDGER, PEERS, STATUS
from tests.support.answering_node import answering_node
from tests.support.processes import wait_for


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "node"
    made.mkdir()
    return made


def answering(follower: FolderFollower, *, up: bool) -> Any:
    """Ask until it is there, or is not."""

    def found() -> LatestAnswers | None:
        answers = follower.now()
        return answers if (answers.down_since_unix is None) is up else None

    return wait_for(found, 30.0, "the node")


def until_doctor_has_answered(follower: FolderFollower) -> None:
    wait_for(lambda: follower.now().doctor == read(Doctor, DOCTOR), 30.0, "the doctor")


def test_a_node_that_goes_away_is_down_since_then_and_found_again(folder: Path) -> None:
    follower = FolderFollower(folder)
    assert follower.now().down_since_unix == 0.0
    with answering_node(folder, {"status": STATUS, "doctor": DOCTOR}):
        answers = answering(follower, up=True)
        assert answers.status == read(Status, STATUS)
        assert answers.ledger is None
    before = time.time()
    down = answering(follower, up=False)
    assert before - 1 <= down.down_since_unix <= time.time()
    assert down.status == read(Status, STATUS)
    assert down.doctor is None
    assert follower.now().down_since_unix == down.down_since_unix
    with answering_node(folder, {"status": {**STATUS, "round": 1}}):
        assert answering(follower, up=True).status.round == 1
    follower.close()


def test_after_a_restart_every_view_is_requested_again(folder: Path) -> None:
    """It may be of another version, with other views; nothing of before is shown as its own."""
    follower = FolderFollower(folder)
    with answering_node(folder, {"status": STATUS, "ledger": LEDGER, "doctor": DOCTOR}):
        assert answering(follower, up=True).ledger == read(Ledger, LEDGER)
        until_doctor_has_answered(follower)
    assert answering(follower, up=False).doctor is None
    with answering_node(folder, {"status": STATUS, "peers": PEERS}):
        answers = answering(follower, up=True)
        assert (answers.peers, answers.ledger, answers.doctor) == (read(Peers, PEERS), None, None)
    follower.close()


def test_a_missing_view_is_requested_once_and_doctor_at_intervals(folder: Path) -> None:
    counts: Counter[str] = Counter()

    class Counted(dict[str, Any]):
        def __contains__(self, view: object) -> bool:
            counts[str(view)] += 1
            return super().__contains__(view)

    follower = FolderFollower(folder)
    with answering_node(folder, Counted(status=STATUS, doctor=DOCTOR)):
        answering(follower, up=True)
        until_doctor_has_answered(follower)
        before = counts["status"]
        for _ in range(10):
            follower.now()
        assert counts["status"] == before + 10
        assert (counts["ledger"], counts["doctor"]) == (1, 1)
    follower.close()


def test_doctor_has_one_request_at_a_time_and_may_be_a_minute_old(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes seconds, and asks other peers."""
    options, answered = list[dict[str, Any]](), threading.Event()
    real = NodeClient.send

    class Slow(dict[str, Any]):
        def __getitem__(self, view: str) -> Any:
            assert view != "doctor" or answered.wait(30)
            return super().__getitem__(view)

    def noted(client: NodeClient, body: m.Inspect) -> Ticket:
        options.append(json.loads(body.options_json))
        return real(client, body)

    monkeypatch.setattr(NodeClient, "send", noted)
    monkeypatch.setattr(folder_follower, "SELDOM_S", 0.0)
    follower = FolderFollower(folder)
    with answering_node(folder, Slow(status=STATUS, doctor=DOCTOR)):
        answering(follower, up=True)
        wait_for(lambda: options, 30.0, "its question")
        for _ in range(3):
            assert follower.now().doctor is None
        assert options == [{"within_s": 60.0}]
        answered.set()
        until_doctor_has_answered(follower)
    follower.close()


def test_what_is_no_answer_is_none(folder: Path) -> None:
    follower = FolderFollower(folder)
    with answering_node(folder, {"status": ["no object"]}):
        for _ in range(3):
            assert follower.now().down_since_unix == 0.0
    follower.close()


def test_a_node_that_has_ended_left_its_last_words(folder: Path) -> None:
    path, before = folder / STATE_FILE, time.time()
    write_state(path, LAST_STATUS, json.dumps(STATUS).encode())
    answers = FolderFollower(folder).now()
    assert before <= (answers.down_since_unix or 0.0) <= time.time()
    assert answers.status == read(Status, STATUS)
    write_state(path, LAST_STATUS, b"no JSON")
    assert FolderFollower(folder).now().status is None


def test_of_a_long_run_there_are_its_first_mark_and_its_latest(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    marks = [{"event": "held_out", "round": n, "held_out/pass@1": n / 10} for n in range(4)]
    pad = "x" * 100
    rounds = [
        {"event": "round", "round": n, "reward_local": n / 4000, "pad": pad} for n in range(4000)
    ]
    lines = [json.dumps(one) for one in (marks[0], *rounds, marks[3])]
    path.write_text("\n".join(lines) + "\n" + '{"cut')
    follower = FolderFollower(folder)
    run = follower.now().run
    assert run.held_out_initial is not None and run.held_out is not None
    assert (run.held_out_initial.pass_at_1, run.held_out.pass_at_1) == (0.0, 0.3)
    assert run.round == 3999
    assert run.reward_local == pytest.approx((3999 - 9.5) / 4000), "of the latest twenty"
    with path.open("a") as file:
        file.write(' short"}\n' + json.dumps(marks[2]) + "\n")
    assert follower.now().run.held_out == evaluation(2, 0.2, 0)
    path.write_text("7\n[1]\n" + json.dumps(marks[3]) + "\n")  # a shorter one in its place
    assert follower.now().run == RunFile(
        held_out=evaluation(3, 0.3, 0), held_out_initial=evaluation(3, 0.3, 0)
    )
    path.unlink()
    assert follower.now().run == RunFile()

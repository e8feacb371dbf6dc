"""What a folder's node is asked: its views, its last words, its metrics."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shoal.view import asking as view_asking
from shoal.view.asking import FolderFollower, LatestAnswers
from shoal.view.run import RunFile
from shoal_ipc import messages as m
from shoal_ipc.answers.doctor import Doctor
from shoal_ipc.answers.form import read
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import Status
from shoal_ipc.answers.peer import Peers
from shoal_ipc.client import NodeClient, Ticket
from tests.shoal.view.node_answers import DOCTOR, LEDGER, PEERS, STATUS
from tests.support.answering_node import answering_node
from tests.support.processes import wait_for


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "node"
    made.mkdir()
    return made


def answering(asking: FolderFollower, *, up: bool) -> Any:
    """Ask until it is there, or is not."""

    def found() -> LatestAnswers | None:
        answers = asking.now()
        return answers if (answers.down_since_unix is None) is up else None

    return wait_for(found, 30.0, "the node")


def until_doctor_has_answered(asking: FolderFollower) -> None:
    wait_for(lambda: asking.now().doctor == read(Doctor, DOCTOR), 30.0, "the doctor")


def test_a_node_that_goes_away_is_down_since_then_and_found_again(folder: Path) -> None:
    asking = FolderFollower(folder)
    assert asking.now().down_since_unix == 0.0
    with answering_node(folder, {"status": STATUS, "doctor": DOCTOR}):
        answers = answering(asking, up=True)
        assert answers.status == read(Status, STATUS)
        assert answers.ledger is None
    before = time.time()
    down = answering(asking, up=False)
    assert before - 1 <= down.down_since_unix <= time.time()
    assert down.status == read(Status, STATUS)
    assert down.doctor is None
    assert asking.now().down_since_unix == down.down_since_unix
    with answering_node(folder, {"status": {**STATUS, "round": 1}}):
        assert answering(asking, up=True).status.round == 1
    asking.close()


def test_who_comes_back_is_asked_everything_anew(folder: Path) -> None:
    """It may be of another version, with other views; nothing of before is shown as its own."""
    asking = FolderFollower(folder)
    with answering_node(folder, {"status": STATUS, "ledger": LEDGER, "doctor": DOCTOR}):
        assert answering(asking, up=True).ledger == read(Ledger, LEDGER)
        until_doctor_has_answered(asking)
    assert answering(asking, up=False).doctor is None
    with answering_node(folder, {"status": STATUS, "peers": PEERS}):
        answers = answering(asking, up=True)
        assert (answers.peers, answers.ledger, answers.doctor) == (read(Peers, PEERS), None, None)
    asking.close()


def test_a_view_that_it_has_not_is_asked_for_once_and_doctor_now_and_then(folder: Path) -> None:
    asked: Counter[str] = Counter()

    class Counted(dict[str, Any]):
        def __contains__(self, view: object) -> bool:
            asked[str(view)] += 1
            return super().__contains__(view)

    asking = FolderFollower(folder)
    with answering_node(folder, Counted(status=STATUS, doctor=DOCTOR)):
        answering(asking, up=True)
        until_doctor_has_answered(asking)
        before = asked["status"]
        for _ in range(10):
            asking.now()
        assert asked["status"] == before + 10
        assert (asked["ledger"], asked["doctor"]) == (1, 1)
    asking.close()


def test_doctor_is_asked_one_at_a_time_and_may_be_a_minute_old(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes seconds, and asks other peers."""
    told, answered = list[dict[str, Any]](), threading.Event()
    real = NodeClient.send

    class Slow(dict[str, Any]):
        def __getitem__(self, view: str) -> Any:
            assert view != "doctor" or answered.wait(30)
            return super().__getitem__(view)

    def noted(client: NodeClient, body: m.Inspect) -> Ticket:
        told.append(json.loads(body.options_json))
        return real(client, body)

    monkeypatch.setattr(NodeClient, "send", noted)
    monkeypatch.setattr(view_asking, "SELDOM_S", 0.0)
    asking = FolderFollower(folder)
    with answering_node(folder, Slow(status=STATUS, doctor=DOCTOR)):
        answering(asking, up=True)
        wait_for(lambda: told, 30.0, "its question")
        for _ in range(3):
            assert asking.now().doctor is None
        assert told == [{"within_s": 60.0}]
        answered.set()
        until_doctor_has_answered(asking)
    asking.close()


def test_what_is_no_answer_is_none(folder: Path) -> None:
    asking = FolderFollower(folder)
    with answering_node(folder, {"status": ["no object"]}):
        for _ in range(3):
            assert asking.now().down_since_unix == 0.0
    asking.close()


def test_a_node_that_has_ended_left_its_last_words(folder: Path) -> None:
    left = folder / "last-status.json"
    left.write_text(json.dumps(STATUS))
    os.utime(left, (1000.0, 1000.0))
    answers = FolderFollower(folder).now()
    assert answers.down_since_unix == 1000.0
    assert answers.status == read(Status, STATUS)
    left.write_text("no JSON")
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
    asking = FolderFollower(folder)
    run = asking.now().run
    assert (run.held_out_initial, run.held_out, run.round) == (0.0, 0.3, 3999)
    assert run.reward_local == pytest.approx((3999 - 9.5) / 4000), "of the latest twenty"
    with path.open("a") as file:
        file.write(' short"}\n' + json.dumps(marks[2]) + "\n")
    assert asking.now().run.held_out == 0.2
    path.write_text("7\n[1]\n" + json.dumps(marks[3]) + "\n")  # a shorter one in its place
    assert asking.now().run == RunFile(held_out=0.3, held_out_initial=0.3)
    path.unlink()
    assert asking.now().run == RunFile()

"""A real node with its trainer and a real judge, which is killed in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal_lab.judge_report.records import records_in
from shoal_wire.judge_messages import Mode
from tests.support.data_folder import read_metrics
from tests.support.processes import LOOPBACK, open_stage


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_node_is_judged_before_and_after_its_judge_is_killed(tmp_path: Path) -> None:
    def judged(count: int) -> Any:
        return lambda status: status["judge"]["judged"] >= count

    with open_stage(tmp_path) as stage:
        judge = stage.process("judge", "judge", "--listen", LOOPBACK).start()
        node = stage.node("node", "--judge", judge.address, "--external", "0")
        node.wait_status(judged(2), "two scores", 180)
        judge.kill()
        before = node.view()
        assert before is not None
        rounds_then = before["round"]
        node.wait_status(lambda s: s["judge"]["error"], "to notice that the judge is away", 60)
        node.wait_status(lambda s: s["round"] > rounds_then + 11, "to train on meanwhile", 60)
        judge.start()
        node.wait_status(
            judged(before["judge"]["judged"] + 1), "a score of the judge that is back", 150
        )
        assert node.stop() == 0
        assert judge.stop() == 0
        events = [row for row in read_metrics(node.data_dir) if row["event"] == "judge"]
        scores = {event["judge/number"]: event["judge/score"] for event in events}
        records = {r.number: r for r in records_in(judge.data_dir).good}
        assert len(scores) >= 3
        assert scores.items() <= {n: r.score for n, r in records.items()}.items()
        assert sorted(records) == list(range(1, len(records) + 1))
        assert {(r.peer_id, r.mode) for r in records.values()} == {(node.peer_id, Mode.SILO)}
        assert node.log.count("no score from the judge") == 1

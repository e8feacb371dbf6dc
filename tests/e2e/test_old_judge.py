"""A judge and a node of an earlier commit and of the present one: each judges the other's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal_lab.judge_report.records import records_in
from tests.support.old_commit import run
from tests.support.processes import LOOPBACK, PRESENT, Program, ShoalProcess, open_stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FLAGS = (
    *("--listen", LOOPBACK, "--no-mdns", "--eval-every", "0", "--log", "none"),
    *("--external", "0", "--round-seconds", "0.2", "--judge-every", "1"),
)


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")], ids="-".join)
def test_a_judge_goes_on_in_the_others_folder(
    tmp_path: Path, old: Program, order: tuple[str, str]
) -> None:
    """In each turn it judges a node of the other commit, and is read by both commands."""
    programs = {"old": old, "new": PRESENT}
    judged: dict[int, float] = {}
    ids = set()
    for turn, other in (order, reversed(order)):
        with (
            open_stage(tmp_path, programs[turn]) as judges,
            open_stage(tmp_path, programs[other]) as nodes,
        ):
            judge = judges.process("judge", "judge", "--listen", LOOPBACK).start()
            node = nodes.process("node", f"of-{other}", *FLAGS, "--judge", judge.address).start()
            node.wait_status(lambda s: s["judge"]["judged"] >= 2, "two scores", 240.0)
            ids.add(judge.peer_id)
            assert node.stop() == 0, node.log
            _both_commands_report_the_same(old, judge, tmp_path)
            assert judge.stop() == 0, judge.log
        judged |= _scores_told_to(node)
        records = records_in(judge.data_dir)
        assert records.refused == 0
        assert [record.number for record in records.good] == list(range(1, len(records.good) + 1))
        assert judged.items() <= {r.number: r.score for r in records.good}.items()
    assert len(ids) == 1
    assert len({record.peer_id for record in records.good}) == 2


def _scores_told_to(node: ShoalProcess) -> dict[int, float]:
    """Scores by the number of the record."""
    lines = (node.data_dir / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return {e["judge/number"]: e["judge/score"] for e in events if e["event"] == "judge"}


def _both_commands_report_the_same(old: Program, judge: ShoalProcess, root: Path) -> None:
    """From the judge's folder, and from what it tells to anybody who asks."""
    reports: list[Any] = []
    for source in (("--data-dir", str(judge.data_dir)), ("--from", judge.address)):
        for program in (old, PRESENT):
            out = root / f"report-{judge.data_dir.name}"
            done = run(program, "judge", "report", *source, "--out", str(out), "--json")
            assert done.returncode == 0, done.stderr
            reports.append(json.loads(done.stdout))
    assert reports[0]["records"] >= 2
    assert all(report == reports[0] for report in reports)

"""Names of metrics, and the file that holds them."""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import fields
from pathlib import Path

import pytest

from shoal_policy.record.metrics import (
    MetricsFile,
    held_out_metrics,
    metric_name,
    reward_spread,
    round_metrics,
)
from shoal_policy.record.progress import RoundRecord, RunCounters
from tests.policy import training_cases
from tests.policy.record.test_progress import record
from tests.support.schemas import check

HELD_OUT = {
    "round": 25,
    "pass@1": 0.5,
    "reward": 0.625,
    "num_items": 4,
    "seconds": 0.1,
    "families": {"gcd_easy": 0.25, "count_bits_easy": 0.75},
    "items": {"gcd_easy": 2, "count_bits_easy": 2},
}


def lines(path: Path) -> list[tuple[str, int]]:
    return [(event["event"], event["round"]) for event in training_cases.metrics(path.parent)]


def event(number: int, kind: str = "round") -> dict[str, object]:
    return {"event": kind, "round": number}


def test_a_round_is_written_under_trls_names() -> None:
    progress = RunCounters()
    progress.add(record(1, 0.5, tokens_seen=30))
    second = record(2, 0.5, tokens_seen=12, num_tokens=7, clip_fraction=0.25, seconds=2.0)
    progress.add(second)
    named = round_metrics(second, progress)
    assert named["num_tokens"] == 42
    assert named["tokens_trained"] == 7
    assert named["clip_ratio/region_mean"] == 0.25
    assert named["step_time"] == 2.0
    assert len(named) == len(fields(RoundRecord)) + 1, "no name is taken twice"
    assert metric_name("reward") == "reward"


def test_an_evaluation_is_kept_apart_from_rewards_of_training() -> None:
    named = held_out_metrics(HELD_OUT)
    assert named.pop("round") == 25
    assert all(name.startswith("held_out/") for name in named)
    assert named["held_out/gcd_easy"] == 0.25
    assert named["held_out/pass@1"] == HELD_OUT["pass@1"]


def test_programs_read_what_the_file_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl", last_round=0, print_json=True)
    for one in (event(1), {**event(1, "held_out"), "held_out/pass@1": 0.5}, event(1, "judge")):
        file.append(one)
    message = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for one in message:
        check("trainer", one)
        del one["schema_version"]
    written = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert message == list(map(json.loads, written))


def test_the_spread_of_rewards_is_within_groups() -> None:
    std, zero_share = reward_spread([(0.0, 1.0), (1.0, 1.0), (0.0, 0.5, 1.0)])
    assert std == pytest.approx((statistics.stdev((0, 1)) + 0 + 0.5) / 3)
    assert zero_share == pytest.approx(1 / 3)
    assert reward_spread([]) == (None, None)


def test_rounds_that_will_be_played_again_leave_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, last_round=0)
    for number in range(1, 6):
        file.append(event(number))
    file.append(event(5, "held_out"))
    with path.open("a") as stream:
        stream.write('{"event": "round", "rou')  # killed while writing
    resumed = MetricsFile(path, last_round=3, last_held_out=-1)
    resumed.append(event(4))
    assert lines(path) == [("round", 1), ("round", 2), ("round", 3), ("round", 4)]
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_an_evaluation_stays_if_the_checkpoint_knows_of_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, last_round=0)
    for kind, number in (("held_out", 0), ("round", 1), ("round", 2), ("held_out", 2)):
        file.append(event(number, kind))
    MetricsFile(path, last_round=2, last_held_out=2)
    assert len(lines(path)) == 4
    MetricsFile(path, last_round=2, last_held_out=0)
    assert lines(path)[-1] == ("round", 2)
    MetricsFile(path, last_round=0)
    assert not path.exists()
    assert len((tmp_path / "metrics.jsonl.old").read_text().splitlines()) == 3


def test_a_disk_that_is_full_for_a_while_costs_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, last_round=0)
    file.append(event(1))
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) > 5:
            return write(descriptor, data[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    file.append(event(2))
    file.append(event(3))
    assert lines(path) == [("round", 1)]
    assert caplog.text.count("metrics not written") == 1
    monkeypatch.undo()
    file.append(event(4))
    assert [number for _, number in lines(path)] == [1, 2, 3, 4]

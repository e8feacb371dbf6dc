"""Curves of a run: whole at once, as they grow, and never more than a screen takes."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.view.run import MAX_POINTS, WINDOW, RunReader, _stretches
from shoal_policy.record.metrics import MetricsFile

SEED = 7
NUM_ROWS = 10 * MAX_POINTS


def line(number: int, **changes: Any) -> str:
    row = {"event": "round", "round": number, "reward_local": number / 1000}
    return json.dumps({**row, "reward_external": None, **changes}) + "\n"


def num_rows(run: RunReader) -> Any:
    """Return the rounds that are held, once what is new has been read."""
    run.refresh()
    return run.curves()["rows"]


def test_a_run_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    run = RunReader(path)
    assert num_rows(run) == 0
    path.write_text(line(0) + line(1)[:10])
    assert num_rows(run) == 1
    path.write_text(line(0) + line(1))
    assert num_rows(run) == 2
    version = run.version
    assert num_rows(run) == 2 and run.version == version
    shown = run.curves()
    assert shown["x"] == [0, 1]
    assert shown["series"]["own"] == [0, 0.001]
    assert shown["series"]["others"] == [None, None]


def test_the_trainers_own_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, last_round=0)
    file.append({"event": "round", "round": 1, "reward_local": 0.5})
    file.append({"event": "held_out", "round": 1, "held_out/pass@1": 0.25, "held_out/gcd": 1.0})
    run = RunReader(path)
    run.refresh()
    assert run.curves()["series"]["own"] == [0.5]
    assert run.curves()["held_out"] == {"pass@1": [(1.0, 0.25)], "gcd": [(1.0, 1.0)]}


def test_a_file_in_its_place_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(number) for number in range(10)))
    run = RunReader(path)
    run.refresh()
    version = run.version
    other = tmp_path / "other"
    other.write_text(line(0) + line(2))
    other.replace(path)
    assert num_rows(run) == 2 and run.version > version
    os.truncate(path, len(line(0)))
    assert num_rows(run) == 1


def test_many_rounds_fit_a_screen_with_their_peaks(tmp_path: Path) -> None:
    """Ten to a point: 2,000 points, the highest and the lowest among them."""
    dice, path = random.Random(SEED), tmp_path / "metrics.jsonl"
    rewards = [dice.random() * 0.5 + 0.2 for _ in range(NUM_ROWS)]
    rewards[10_001], rewards[17_007] = 0.99, 0.01
    with path.open("w") as file:
        file.writelines(line(place, reward_local=reward) for place, reward in enumerate(rewards))
    run = RunReader(path)
    run.refresh()
    shown = run.curves()
    assert shown["rows"] == NUM_ROWS and len(shown["x"]) == MAX_POINTS
    assert {len(values) for values in shown["series"].values()} == {MAX_POINTS}
    assert max(shown["series"]["own"]) == 0.99 and min(shown["series"]["own"]) == 0.01
    assert (shown["x"][0], shown["x"][-1]) == (0, NUM_ROWS - 1)
    assert shown["x"] == sorted(shown["x"])


def test_the_mean_is_of_the_latest_rounds(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(n, reward_local=float(n)) for n in range(WINDOW + 5)))
    run = RunReader(path)
    run.refresh()
    means = run.curves()["series"]["own_mean"]
    assert means[0] == 0 and means[-1] == sum(range(5, WINDOW + 5)) / WINDOW


@pytest.mark.parametrize(
    "bad",
    [
        *("", "{", "[]", "null", '"x"', '{"event": "round"}', '{"event": "round", "round": "x"}'),
        *(
            "\x00",
            "é",
            '{"event": "round", "round": 1e999}',
            '{"event": "held_out", "round": null}',
        ),
        '{"event": "round", "round": , "reward_local": , "reward_external": }',
    ],
)
def test_a_line_that_is_none_costs_itself_alone(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(0) + bad + "\n" + line(1))
    run = RunReader(path)
    run.refresh()
    assert [x for x in run.curves()["x"] if x < 2] == [0, 1]
    json.dumps(run.curves(), allow_nan=True)


@given(st.integers(0, 10_000), st.integers(4, MAX_POINTS))
def test_stretches_cover_all_once(num: int, points: int) -> None:
    found = _stretches(num, points)
    assert [place for first, last in found for place in range(first, last)] == list(range(num))
    assert sum(min(2, last - first) for first, last in found) <= points

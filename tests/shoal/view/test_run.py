"""Curves of a run: whole at once, as they grow, and never more than a screen takes."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from shoal.view.run import MAX_POINTS, RunReader
from shoal_ipc.answers.held_out import evaluation
from shoal_ipc.answers.node import WINDOW
from shoal_policy.record.metrics import MetricsFile

SEED = 7
NUM_ROWS = 10 * MAX_POINTS


def line(number: int, **changes: Any) -> str:
    row = {"event": "round", "round": number, "reward_local": number / 1000}
    return json.dumps({**row, "reward_external": None, **changes}) + "\n"


def read(folder: Path, text: str) -> RunReader:
    """Read a run whose file has this text."""
    path = folder / "metrics.jsonl"
    path.write_text(text)
    run = RunReader(path)
    run.refresh()
    return run


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
    rounds, _, _, external, own, *_ = run.curves()["points"]
    assert (rounds, own, external) == ([0, 1], [0, 0.0005], [None, None])


def test_the_trainers_own_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, last_round=0)
    file.append({"event": "round", "round": 1, "reward_local": 0.5})
    file.append({"event": "held_out", "round": 1, "held_out/pass@1": 0.25, "held_out/gcd": 1.0})
    run = RunReader(path)
    run.refresh()
    file.append({"event": "held_out", "round": 3, "held_out/pass@1": 0.5, "held_out/gcd": 0.75})
    run.refresh()
    rounds, _, _, _, own, held, low, _ = run.curves()["points"]
    assert (rounds, own, held, low) == ([1, 3], [0.5, None], [0.25, 0.5], [None, None])
    assert run.curves()["families"] == {"gcd": [(1.0, 1.0), (3.0, 0.75)]}


def test_how_sure_a_share_of_held_out_questions_is(tmp_path: Path) -> None:
    event = {"event": "held_out", "round": 0, "held_out/pass@1": 0.5, "held_out/num_items": 96}
    run = read(tmp_path, json.dumps(event) + "\n")
    assert run.facts().held_out == evaluation(0, 0.5, 96)
    assert run.curves()["points"][-2:] == [[pytest.approx(0.402)], [pytest.approx(0.598)]]


def test_a_replaced_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    run = read(tmp_path, "".join(line(number) for number in range(10)))
    version = run.version
    other = tmp_path / "other"
    other.write_text(line(0) + line(2))
    other.replace(path)
    assert num_rows(run) == 2 and run.version > version
    os.truncate(path, len(line(0)))
    assert num_rows(run) == 1


def test_many_rounds_fit_a_screen_from_the_first_to_the_last(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    rewards = [dice.random() * 0.5 + 0.2 for _ in range(NUM_ROWS)]
    lines = (line(place, reward_local=reward) for place, reward in enumerate(rewards))
    shown = read(tmp_path, "".join(lines)).curves()
    rounds = shown["points"][0]
    assert shown["rows"] == NUM_ROWS and len(rounds) == MAX_POINTS + 1
    assert {len(values) for values in shown["points"]} == {len(rounds)}
    assert (rounds[0], rounds[-1]) == (0, NUM_ROWS - 1)
    assert rounds == sorted(rounds)


def test_the_mean_is_of_the_latest_rounds(tmp_path: Path) -> None:
    run = read(tmp_path, "".join(line(n, reward_local=float(n)) for n in range(WINDOW + 5)))
    means = run.curves()["points"][4]
    assert means[0] == 0 and means[-1] == sum(range(5, WINDOW + 5)) / WINDOW


def test_a_reward_that_none_can_be_is_left_out(tmp_path: Path) -> None:
    """The sum of two of them is beyond every float."""
    run = read(tmp_path, "".join(line(n, reward_local=[1e308, 0.5][n > 2]) for n in range(6)))
    assert run.facts().reward_local == 0.5


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
    run = read(tmp_path, line(0) + bad + "\n" + line(1))
    assert [x for x in run.curves()["points"][0] if x < 2] == [0, 1]
    json.dumps(run.curves(), allow_nan=True)


def test_other_tasks_are_another_beginning(tmp_path: Path) -> None:
    rose = [line(number, reward_local=min(0.9, number / 50)) for number in range(1, 91)]
    tasks = json.dumps({"event": "tasks", "round": 90, "families": ["easy", "hard"]}) + "\n"
    lower = [line(number, reward_local=0.3) for number in range(91, 150)]
    before = read(tmp_path, "".join(rose)).facts()
    assert before.answer.startswith("Yes") and (before.reward_local or 0) > 0.8
    run = read(tmp_path, "".join([*rose, tasks]))
    assert run.facts().reward_local is None and run.facts().answer == ""
    run = read(tmp_path, "".join([*rose, tasks, *lower]))
    assert run.facts().reward_local == pytest.approx(0.3)
    assert run.facts().answer.startswith("Not clear"), run.facts().answer

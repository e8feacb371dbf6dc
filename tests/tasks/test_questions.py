"""Held-out questions are never trained on, however often a file contains them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_tasks.errors import FamilyError
from shoal_tasks.families import (
    TRAIN_SEED_MIN,
    coordinates,
    example_coordinates,
    trial_coordinates,
)
from shoal_tasks.questions import RepeatedQuestions, SplitRows, question_key
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from tests.support.task_files import task_file
from tests.tasks.here import HereWorker

ROWS = st.lists(st.sampled_from(["a", " A", "b", "b ", "C", "c", "d e", "D\te", "f"]), min_size=1)


@given(ROWS, st.data())
def test_a_question_is_wholly_on_one_side(questions: list[str], data: st.DataObject) -> None:
    keys = list(map(question_key, questions))
    num_held_out = data.draw(st.integers(0, len(set(keys)) - 1))
    split = SplitRows.of(keys, list(enumerate(questions)), num_held_out)
    sides = [
        {question_key(text) for group in side for _, text in group}
        for side in (split.training, split.held_out)
    ]
    assert not sides[0] & sides[1] and sides[0]
    assert len(split.held_out) == num_held_out
    assert all(len({question_key(text) for _, text in group}) == 1 for group in split.training)
    numbers = sorted(n for side in (split.training, split.held_out) for g in side for n, _ in g)
    assert numbers == list(range(len(questions))), "no row is lost"
    first = [group[0][0] for group in split.training]
    assert first == sorted(first), "in the file's order"
    # The last questions are held out: nothing after a held-out question's last row is trained on.
    if split.held_out:
        earliest = min(group[-1][0] for group in split.held_out)
        assert max(n for group in split.training for n, _ in group) < earliest
    assert RepeatedQuestions.of(keys).num_questions == len(set(keys))


def repeated(times: int, count: int = 20) -> list[dict[str, Any]]:
    return [{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(count)] * times


@pytest.mark.parametrize("times", [1, 20])
@pytest.mark.parametrize("reward", [None, "reward.py"])
def test_draws_go_by_distinct_question(tmp_path: Path, times: int, reward: str | None) -> None:
    (tmp_path / "reward.py").write_text("def reward(completions, **_):\n    return [1.0]\n")
    spec = load_task_file(task_file(tmp_path, "mine", repeated(times), reward=reward))
    assert (spec.config["rows"], spec.config["held_out"]) == (20, 2)
    assert [note[:32] for note in spec.notes] == (
        [] if times == 1 else ["400 rows ask 20 different questi"]
    )
    with HereWorker([spec]) as worker:
        trained = {text for _, text in worker.draw(random.Random(1), 200)}
        evaluated = {text for _, text in worker.held_out(64)}
        shown = [*example_coordinates(spec, 50), *trial_coordinates(spec, 50)]
        assert set(worker.questions(shown)) == trained
    assert (len(trained), len(evaluated), trained & evaluated) == (18, 2, set())


def test_the_rows_of_one_question_take_turns_where_a_reward_tells_them_apart(
    tmp_path: Path,
) -> None:
    (tmp_path / "reward.py").write_text(
        "def reward(completions, tone, **_):\n    return [float(completions[0] == tone[0])]\n"
    )
    rows = [{"question": "Write.", "tone": tone} for tone in ("sad", "gay", "sad")]
    rows.append({"question": "Stop.", "tone": "dry"})
    spec = load_task_file(task_file(tmp_path, "mine", rows, reward="reward.py", held_out=0))
    with HereWorker([spec]) as worker:
        tasks = [coordinates(spec, TRAIN_SEED_MIN + n) for n in range(4)]
        assert worker.questions(tasks) == ["Write.", "Stop."] * 2
        stream = worker.answerer._streams["mine"]
        tones = {stream.item(one.seed, 0).score_answer("sad", {}) for one in tasks[::2]}
        assert tones == {0.0, 1.0}


@pytest.mark.parametrize(
    ("rows", "fields", "cause"),
    [
        (["a=1", "b=2", "a=3"], {}, "line 1 and line 3 ask the same question.*'1' and '3'; keep"),
        (["a=1", "A =2", "a=3"], {}, "line 1 and line 2 .*'2'; keep one.* case_matters = true"),
        (["a=1", "a=3", "b=1", "b=2"], {}, r"'1' and '3' \(2 such questions\)"),
        (["a=1", "a=1"], {"held_out": 1}, "held_out must be 0 to 0: the file has 1 different"),
        (["a=1", "a=1"], {"held_out": 2}, "1 different question in 2 rows, and at least one"),
        (["a=1", "a=3"], {"verifier": "math"}, "line 1 and line 2 ask the same question"),
    ],
)
def test_a_file_that_contradicts_itself_or_leaves_nothing_is_refused(
    tmp_path: Path, rows: list[str], fields: dict[str, Any], cause: str
) -> None:
    content = [dict(zip(("question", "answer"), row.split("="), strict=True)) for row in rows]
    with pytest.raises(FamilyError, match=cause) as caught:
        load_task_file(task_file(tmp_path, "mine", content, **fields))
    assert "\n" not in str(caught.value)


def of(folder: Path, *rows: str, **fields: Any) -> FamilySpec:
    content = [dict(zip(("question", "answer"), row.split("="), strict=True)) for row in rows]
    return load_task_file(task_file(folder, "mine", content, **fields))


def test_questions_that_differ_in_case_are_different_where_the_file_says_so(tmp_path: Path) -> None:
    spec = of(tmp_path, "Code of a?=97", "Code of A?=65", case_matters=True)
    assert (spec.config["rows"], spec.config["split"]) == (2, "text")


def test_answers_equal_as_mathematics_do_not_contradict_one_another(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    spec = of(tmp_path, "a=1/2", "a=0.5", "b=2", verifier="math")
    assert spec.config["rows"] == 2
    HereWorker([spec]).close()
    with pytest.raises(FamilyError, match="'a' occurs in several rows with different answers, '1/"):
        HereWorker([of(tmp_path, "a=1/2", "a=1/3", "b=2", verifier="math")])


def test_a_repeated_row_changes_nothing_but_the_note(tmp_path: Path) -> None:
    once, often = of(tmp_path, "a=1", "b=2"), of(tmp_path, "a=1", "a=1", "b=2", "B=2")
    assert once.digest == often.digest
    assert json.loads(Path(often.path).read_text().splitlines()[1])["question"] == "b"


def test_a_test_set_behind_the_rows_is_held_out_as_it_is(tmp_path: Path) -> None:
    spec = of(tmp_path, "x=1", "a=1", "b=2", "x=1", "y=2", held_out=2)
    with HereWorker([spec]) as worker:
        assert {text for _, text in worker.held_out(9)} == {"x", "y"}
        assert {text for _, text in worker.draw(random.Random(1), 20)} == {"a", "b"}

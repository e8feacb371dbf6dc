"""Records become the tasks that the task file describes, or are refused with the reason."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from shoal_tasks import rows_file
from shoal_tasks.errors import FamilyError
from shoal_tasks.rows import parse_rows, worked_answers_path
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from tests.support.task_files import task_file

Row = dict[str, Any]


def chat(*turns: str) -> list[dict[str, str]]:
    """Return turns of `s`ystem, `u`ser and `a`ssistant, such as `u:asked`."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[turn[0]], "content": turn[2:]} for turn in turns]


def read(folder: Path, rows: list[Row], /, **fields: Any) -> tuple[FamilySpec, list[Row]]:
    (folder / "reward.py").write_text("def reward(completions, **_):\n    return [1.0]\n")
    spec = load_task_file(task_file(folder, "mine", rows, held_out=0, **fields))
    return spec, [json.loads(line) for line in Path(spec.path).read_text().splitlines()]


@pytest.mark.parametrize(
    ("row", "fields", "question", "answer"),
    [
        (
            {"question": "q", "reward_model": {"ground_truth": 5}},
            {"answer": "reward_model.ground_truth"},
            "q",
            "5",
        ),
        ({"question": "q", "x.y": "1", "x": {"y": "2"}}, {"answer": "x.y"}, "q", "1"),
        ({"question": "q", "extra": [{"a": [3.0]}]}, {"answer": "extra.0.a.0"}, "q", "3"),
        ({"question": "q", "extra": '{"a": "json"}'}, {"answer": "extra.a"}, "q", "json"),
        ({"m": chat("u:q", "a:r")}, {"question": "m"}, "q", "r"),
        ({"m": chat("u:q", "a:r"), "answer": "s"}, {"question": "m"}, "q", "s"),
        ({"m": chat("u:q", "a:r")}, {"question": "m.0.content", "answer": "m.1.content"}, "q", "r"),
        ({"m": chat("u:q", "a:r")}, {"question": "m", "answer": "m"}, "q", "r"),
        (
            {"prompt": chat("u:q"), "completion": chat("a:r")},
            {"question": "prompt", "answer": "completion"},
            "q",
            "r",
        ),
        (
            {"prompt": "q", "completion": "r"},
            {"question": "prompt", "answer": "completion"},
            "q",
            "r",
        ),
        ({"m": chat("u:q", "a:work #### 4")}, {"question": "m", "answer_after": "####"}, "q", "4"),
        ({"m": chat("u:q", "a:4")}, {"prompt": "{m}!"}, "q!", "4"),
        (
            {"instruction": "add", "input": "", "output": "o"},
            {"prompt": "{instruction}\n\n{input}", "answer": "output"},
            "add",
            "o",
        ),
        ({"question": "q", "answer": True}, {}, "q", "true"),
        ({"question": "q", "answer": 7.5}, {}, "q", "7.5"),
        (
            {"question": "q", "choices": ["x", "y"], "answer": 1},
            {"prompt": "{question}\n{choices}", "choices": "choices"},
            "q\nA. x\nB. y",
            "B",
        ),
        (
            {"question": "q", "choices": ["x", "y"], "answer": "x"},
            {"choices": "choices"},
            "q\n\nA. x\nB. y\nAnswer with the letter of the right choice.",
            "A",
        ),
        (
            {"question": "q", "choices": ["x", "y"], "answer": "B"},
            {"prompt": "{question} {choices}", "choices": "choices"},
            "q A. x\nB. y",
            "B",
        ),
        (
            {"question": "q", "a": "x", "b": "y", "answer": "2"},
            {"prompt": "{question} {choices}", "choices": ["a", "b"], "first_choice": 1},
            "q A. x\nB. y",
            "B",
        ),
        (
            {"question": "q", "answer": r"so \boxed{\frac{1}{2}}."},
            {"answer_after": r"\boxed"},
            "q",
            r"\frac{1}{2}",
        ),
    ],
)
def test_a_record_is_the_task_that_the_keys_describe(
    tmp_path: Path, row: Row, fields: Row, question: str, answer: str
) -> None:
    _, (found,) = read(tmp_path, [row], **fields)
    assert found == {"question": question, "answer": answer}


@pytest.mark.parametrize(
    ("row", "fields", "cause"),
    [
        ({"question": "q", "answer": None}, {}, "line 1: answer is null; remove such rows"),
        (
            {"question": "q", "answer": ["a", "b"]},
            {},
            'a list of 2 texts; name an element, answer = "answer.0"',
        ),
        (
            {"question": "q", "answer": {"style": "x", "ground_truth": 1}},
            {},
            'an object with .*answer = "answer.ground_truth"',
        ),
        ({"question": "q", "answer": ""}, {}, "line 1: answer is an empty text"),
        (
            {"question": ["q"], "answer": "a"},
            {},
            "line 1: question is a list of 1 text, not a text",
        ),
        ({"question": " ", "answer": "a"}, {}, "question is a text of blanks"),
        (
            {"question": "q" * 40_000, "answer": "a"},
            {},
            "question has 40,000 characters; the limit is 32,768",
        ),
        (
            {"question": "q", "answer": "a" * 5000},
            {},
            "answer has 5,000 characters; the limit is 4,096",
        ),
        ({"question": "q\0", "answer": "a"}, {}, "question contains a NUL"),
        (
            {"question": "q", "x": {"y": 1}},
            {"answer": "x.z"},
            "no column 'x.z', but 'question', 'x.y'",
        ),
        (
            {"question": "q", "answer": "a"},
            {"answer_after": "##"},
            r"'##' \(answer_after\) is not in",
        ),
        (
            {"m": chat("u:q", "a:r", "u:s"), "answer": "a"},
            {"question": "m"},
            "line 1: m is a conversation with 2",
        ),
        ({"m": chat("u:q")}, {"question": "m"}, "no column 'answer', but 'm'"),
        (
            {"question": "q", "answer": "a"},
            {"prompt": "{question} {answer}"},
            r"prompt shows the answer: .*\{\{answer\}\}",
        ),
        (
            {"question": "q", "r": {"g": "a"}},
            {"prompt": "{question} {r}", "answer": "r.g"},
            "which holds the answer",
        ),
        (
            {"question": "q", "answer": "a", "gold": "a"},
            {"prompt": "{question} {gold}"},
            "{gold} .* is the answer in every row",
        ),
        (
            {"question": "q", "answer": "w ## a", "gold": "a"},
            {"prompt": "{gold}", "answer_after": "##"},
            "is the answer in",
        ),
        (
            {"question": "q", "answer": "a"},
            {"first_choice": 1},
            "first_choice needs multiple choice",
        ),
        ({"question": "q", "c": ["x"], "answer": 1}, {"choices": "c"}, "holds 1 choices"),
        (
            {"question": "q", "c": ["x", "y"], "answer": 2},
            {"choices": "c"},
            "there is no choice number 2",
        ),
        ({"question": "q", "answer": r"\boxed{1"}, {"answer_after": r"\boxed"}, "is not closed"),
        ({"question": "q", "answer": "1"}, {"answer_after": r"\boxed"}, r"no \\boxed{…} is in"),
    ],
)
def test_a_record_that_is_no_task_is_refused_with_what_it_is(
    tmp_path: Path, row: Row, fields: Row, cause: str
) -> None:
    with pytest.raises(FamilyError, match=cause) as caught:
        read(tmp_path, [row], **fields)
    assert "\n" not in str(caught.value)


def test_rows_with_one_fault_are_counted(tmp_path: Path) -> None:
    rows = [{"question": f"{n}", "answer": "a" * (5000 if n % 2 else 9)} for n in range(10)]
    with pytest.raises(
        FamilyError, match=r"line 2: answer has 5,000 .*\(5 of 10 rows have this fault\)"
    ):
        read(tmp_path, rows)


def test_an_answer_that_is_meant_to_be_shown_is(tmp_path: Path) -> None:
    fields = {"prompt": "Repeat {answer}.", "prompt_shows_answer": True}
    _, (row,) = read(tmp_path, [{"answer": "a"}], **fields)
    assert row == {"question": "Repeat a.", "answer": "a"}


def test_a_column_that_is_the_answer_in_some_rows_alone_may_be_shown(tmp_path: Path) -> None:
    rows = [{"question": f"{n}", "answer": "3", "level": n} for n in range(5)]
    assert len(read(tmp_path, rows, prompt="{question} ({level})")[1]) == 5


def test_one_system_turn_is_the_familys_and_different_ones_stand_in_front(tmp_path: Path) -> None:
    rows = [{"m": chat("s:Count.", f"u:{n}?"), "answer": "1"} for n in range(3)]
    spec, found = read(tmp_path, rows, question="m")
    assert (spec.system, found[0]["question"], spec.notes) == ("Count.", "0?", ())
    spec, found = read(tmp_path, rows, question="m", system="Mine.")
    assert (spec.system, found[0]["question"]) == ("Mine.", "0?")
    assert "own system turns are not used" in spec.notes[0]
    rows[1]["m"], rows[2]["m"] = chat("s:Add.", "u:1?"), chat("u:2?")
    spec, found = read(tmp_path, rows, question="m")
    assert spec.system == ""
    assert [row["question"] for row in found] == ["Count.\n\n0?", "Add.\n\n1?", "2?"]
    assert "3 different system turns" in spec.notes[0]


def test_a_reward_is_given_the_datas_own_columns(tmp_path: Path) -> None:
    def given(row: Row, **fields: Any) -> Row:
        spec, _ = read(tmp_path, [row], reward="reward.py", **fields)
        (found,) = parse_rows(Path(spec.path).read_bytes(), "rows")
        return dict(found.columns)

    row = {"question": "own", "answer": [1, {"a": None}], "problem": "p", "gold": 5, "x.y": 1}
    assert given(row, question="problem", answer="gold") == row
    row = {"question": "q", "answer": "5", "prompts": ["x"]}
    assert given(row) == row
    odd: list[Any] = ["", None, 5, [], " 5"]
    for empty in odd:
        assert given({**row, "answer": empty}) == {**row, "answer": empty}
    row = {"problem": "p", "gold": "w #### 5"}
    fields = {"question": "problem", "answer": "gold", "answer_after": "####"}
    assert given(row, **fields) == {**row, "question": "p", "answer": "5"}
    row = {"question": "p", "answer": "w #### 5"}
    assert given(row, answer_after="####") == {"question": "p", "answer": "5"}


def test_an_unchanged_file_is_converted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"question": "q", "answer": "a"}, {"question": "Q", "answer": "a"}]
    first, _ = read(tmp_path, rows)
    with monkeypatch.context() as without:
        without.delattr(rows_file, "read_records")
        again = load_task_file(tmp_path / "mine.toml")
        with pytest.raises(NameError):
            read(tmp_path, rows[:1])
    assert (again, again.notes, again.path) == (first, first.notes, first.path)
    assert len(first.notes) == 1
    for made in (tmp_path / "cache" / "shoal" / "rows" / "made").iterdir():
        made.write_text("[")
    assert load_task_file(tmp_path / "mine.toml") == first
    Path(first.path).unlink()
    assert Path(load_task_file(tmp_path / "mine.toml").path).exists()


def test_a_damaged_cache_is_converted_again(tmp_path: Path) -> None:
    rows = [{"question": f"{n}", "answer": f"Count.\n#### {n}"} for n in range(9)]
    spec, _ = read(tmp_path, rows, answer_after="####")
    written = [Path(spec.path), worked_answers_path(Path(spec.path))]
    for path in written:
        before = path.read_bytes()
        for damage in (b"", b"{", before[:-1], before.replace(b"8", b"9")):
            path.write_bytes(damage)
            load_task_file(tmp_path / "mine.toml")
            assert path.read_bytes() == before


def nested(rng: random.Random, value: Any) -> tuple[Any, str]:
    """Return a value inside objects and lists, and its dotted name behind the column's."""
    name = ""
    for _ in range(rng.randint(0, 4)):
        if rng.random() < 0.5:
            key = rng.choice(["ground_truth", "a", "x y", "1"])
            value, name = {"other": 1, key: value}, f".{key}{name}"
        else:
            before = rng.randint(0, 2)
            value, name = [None] * before + [value], f".{rng.choice([before, -1])}{name}"
        if rng.random() < 0.2:
            value = json.dumps(value)
    return value, name


def test_nested_answers_of_any_type_are_read_or_refused(tmp_path: Path) -> None:
    read_as = {"x": "x", 5: "5", 2.0: "2", 0.25: "0.25", "true ": "true"}
    refused: list[Any] = [None, [], {}, ["a"], {"k": 1}, ""]
    for seed in range(400):
        rng = random.Random(seed)
        is_read = rng.random() < 0.6
        plain = rng.choice(list(read_as) if is_read else refused)
        value, name = nested(rng, plain)
        rows = [{"question": "q", "gold": value}]
        if is_read:
            _, (found,) = read(tmp_path, rows, answer=f"gold{name}")
            assert found["answer"] == read_as[plain], (seed, value, name)
        else:
            with pytest.raises(FamilyError, match="line 1: answer is "):
                read(tmp_path, rows, answer=f"gold{name}")

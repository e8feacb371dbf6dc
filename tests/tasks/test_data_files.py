"""Data in every format gives the same family, and unreadable data gives one line."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_tasks.data_files import read_records
from shoal_tasks.errors import FamilyError
from shoal_tasks.families import coordinates
from shoal_tasks.task_file import load_task_file
from tests.support.task_files import score_of, task_file
from tests.tasks.here import HereWorker

Records = Sequence[Mapping[str, Any]]

GSM8K = [
    {
        "question": "Natalia sold clips to 48 friends, then half as many. How many in all?",
        "answer": "She sold 48/2 = <<48/2=24>>24 in May.\nIn all <<48+24=72>>72.\n#### 72",
    },
    {"question": "A house costs 80 thousand, and 1000 more. In dollars?", "answer": "#### 81,000"},
]


def as_jsonl(records: Records, path: Path) -> None:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in records), encoding="utf-8")


def as_json(records: Records, path: Path) -> None:
    path.write_text(json.dumps(records), encoding="utf-8")


def as_csv(records: Records, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        rows = csv.DictWriter(file, list(records[0]), delimiter=delimiter)
        rows.writeheader()
        rows.writerows(records)


def as_parquet(records: Records, path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(records)), path)


def as_saved(records: Records, path: Path) -> None:
    import datasets

    datasets.Dataset.from_list([dict(one) for one in records]).save_to_disk(path)


FORMS: dict[str, Callable[[Records, Path], None]] = {
    "rows.jsonl": as_jsonl,
    "rows.json": as_json,
    "rows.csv": as_csv,
    "rows.tsv": as_csv,
    "rows.parquet": as_parquet,
    "saved": as_saved,
}


def test_every_form_of_one_data_set_is_the_same_family(tmp_path: Path) -> None:
    digests = set()
    for name, write in FORMS.items():
        write(GSM8K, tmp_path / name)
        spec = load_task_file(
            task_file(tmp_path, "mine", rows=name, answer_after="####", verifier="math")
        )
        digests.add(spec.digest)
    assert len(digests) == 1


def test_gsm8k_as_it_is_downloaded_is_scored_by_its_number(tmp_path: Path) -> None:
    as_jsonl(GSM8K, tmp_path / "train.jsonl")
    fields = {"rows": "train.jsonl", "verifier": "math", "held_out": 0}
    plain = {"answer_after": "####", "answer_format": "plain", "prompt": "{question} A number:"}
    spec = load_task_file(task_file(tmp_path, "mine", **fields, **plain))
    expected = {
        0: {"72": 1, "72.": 1, "72 clips": 1, "73": 0, "72 or 73": 0, "72, 73": 0, "clips 72": 0},
        # An unevaluated sum or product, as a copy of a question would be.
        2: {
            "70 + 2": 0,
            "70+2": 0,
            "80 - 8": 0,
            r"8 \times 9": 0,
            "(8)(9)": 0,
            "8 9": 0,
            r"72 \text{ clips}": 1,
            r"7.2 \times 10^{1}": 1,
            r"\frac{144}{2}": 1,
        },
        1: {"81,000": 1, "$81000": 1, "81000 dollars.": 1, "81": 0, "81 000": 0},
    }
    requested = {
        (row, text): score_of(coordinates(spec, (1 << 20) + row % 2), text)
        for row, texts in expected.items()
        for text in texts
    }
    with HereWorker([spec]) as worker:
        assert worker.questions([coordinates(spec, 1 << 20)])[0].endswith("? A number:")
        for (row, text), result in zip(
            requested, worker.score(list(requested.values())), strict=True
        ):
            assert result.reward == expected[row][text], (row, text)


def test_an_answer_that_its_own_verifier_does_not_accept_is_refused_with_its_question(
    tmp_path: Path,
) -> None:
    good = [{"question": f"{n}?", "answer": str(n)} for n in range(9)]
    as_jsonl([*good, *GSM8K], tmp_path / "train.jsonl")
    spec = load_task_file(task_file(tmp_path, "mine", rows="train.jsonl", verifier="math"))
    with pytest.raises(
        FamilyError,
        match=r"rejects the reference answer .* to 'Natalia sold.*answer_after = \"####\"",
    ):
        HereWorker([spec])


def test_columns_are_named_and_only_a_reward_is_given_the_others(tmp_path: Path) -> None:
    as_parquet([{"problem": "2 + 3?", "gold": 5, "level": 1}], tmp_path / "rows.parquet")
    fields: dict[str, object] = {"rows": "rows.parquet", "question": "problem", "answer": "gold"}
    spec = load_task_file(task_file(tmp_path, "mine", **fields, prompt="Level {level}: {problem}"))
    assert json.loads(Path(spec.path).read_text()) == {"question": "Level 1: 2 + 3?", "answer": "5"}
    (tmp_path / "reward.py").write_text("def reward(completions, level, **_):\n    return level\n")
    rewarded = load_task_file(task_file(tmp_path, "mine", **fields, reward="reward.py"))
    assert json.loads(Path(rewarded.path).read_text())["columns"]["level"] == 1


def test_a_prompt_in_chat_form_is_its_one_user_turn(tmp_path: Path) -> None:
    turn = {"role": "user", "content": "2 + 3?"}
    as_parquet([{"prompt": [turn], "answer": "5"}], tmp_path / "rows.parquet")
    spec = load_task_file(task_file(tmp_path, "mine", rows="rows.parquet", question="prompt"))
    assert json.loads(Path(spec.path).read_text())["question"] == "2 + 3?"


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("rows.csv", b"question,answer\na,b,c\n", "line 2: 3 cells, but there are 2 columns"),
        ("rows.csv", b"question,answer\n\xff,b\n", "not UTF-8"),
        ("rows.csv", b'question,answer\n"a,b\n', "line"),
        ("rows.csv", b"question,answer\n", "no rows"),
        ("rows.csv", b"text,label\na,b\n", "no column 'question', but 'text', 'label'"),
        ("rows.json", b"{}", "line 1 is empty"),
        ("rows.json", b"[1]", "row 1: not a JSON object"),
        ("rows.json", b"[" * 100_000, "not JSON"),
        ("rows.parquet", b"PAR1 and nothing more", "cannot read"),
        ("rows.parquet", b"", "cannot read"),
        ("hf:nothing", b"", "is not hf:org/name"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, name: str, content: bytes, cause: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FamilyError, match=cause) as caught:
        load_task_file(task_file(tmp_path, "mine", rows=name))
    assert "\n" not in str(caught.value)


def test_a_folder_of_splits_asks_for_one(tmp_path: Path) -> None:
    import datasets

    one = datasets.Dataset.from_list([dict(row) for row in GSM8K])
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(tmp_path / "both")
    with pytest.raises(FamilyError, match=r"name one, such as .*both/train"):
        load_task_file(task_file(tmp_path, "mine", rows="both"))
    load_task_file(task_file(tmp_path, "mine", rows="both/train", answer_after="####"))
    with pytest.raises(FamilyError, match="was not written by `save_to_disk`"):
        load_task_file(task_file(tmp_path, "mine", rows="."))


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
CELLS = TEXT.map(str.strip).filter(bool)


@given(st.lists(st.tuples(CELLS, CELLS | st.integers(-999, 999)), min_size=1, max_size=5))
def test_whatever_stands_in_the_cells_every_form_reads_the_same(
    rows: list[tuple[str, str | int]],
) -> None:
    records = [{"question": requested, "answer": str(answer)} for requested, answer in rows]
    with tempfile.TemporaryDirectory() as folder:
        for name, write in FORMS.items():
            if name != "saved":
                write(records, Path(folder) / name)
                found = [record for _, record in read_records(name, Path(folder))]
                assert found == records, name

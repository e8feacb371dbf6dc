"""Generated data files of every format are read as the rows that they were written from."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal_tasks.data_files import DataForm, ReadOptions, read_records, recognise
from shoal_tasks.errors import FamilyError
from shoal_tasks.row_shapes import RowKeys, RowShaper
from shoal_tasks.task_file import load_task_file
from tests.support.task_files import task_file
from tests.tasks.data_forms import Written, text_of, write_binary, write_json, write_table

Write = Callable[[random.Random, Path], Written]


def check(write: Write, seeds: range, folder: Path) -> None:
    for seed in seeds:
        written = write(random.Random(seed), folder)
        found = [record for _, record in read_records(written.path.name, folder)]
        assert found == written.rows, (seed, written.form)
        written.path.unlink()


@pytest.mark.parametrize(
    ("write", "count"), [(write_json, 700), (write_table, 500), (write_binary, 100)]
)
def test_every_form_is_read_as_it_was_written(write: Write, count: int, tmp_path: Path) -> None:
    check(write, range(count), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "count"), [(write_json, 8_000), (write_table, 8_000), (write_binary, 500)]
)
def test_many_more_forms_are_read_as_they_were_written(
    write: Write, count: int, tmp_path: Path
) -> None:
    check(write, range(10_000, 10_000 + count), tmp_path)


def test_the_same_rows_in_any_form_are_one_family(tmp_path: Path) -> None:
    for seed in range(50):
        rng = random.Random(seed)
        rows = [{"question": text_of(rng), "answer": text_of(rng)} for _ in range(4)]
        repeated = [*rows, *rng.choices(rows, k=seed % 3)]
        digests = set()
        for write in (write_json, write_json, write_table, write_table, write_binary):
            written = write(rng, tmp_path, repeated)
            spec = load_task_file(task_file(tmp_path, "mine", rows=written.path.name, held_out=0))
            digests.add(spec.digest)
            written.path.unlink()
        assert len(digests) == 1, seed


LINES = "question,answer\nCafé 1?,1\nCafé 2?,2\n"


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        (
            "a.csv",
            LINES.encode("cp1252"),
            r"in line 2\. .*Windows-1252 \('Café 1\?,1'\).*iconv",
        ),
        ("a.csv", "frage,antwort\nGröße?,3 m²\n".encode("cp1252"), "looks like Windows-1252"),
        ("a.csv", b"question\nq1,a1\nq2,a2\n", "line 2: 2 cells, but there are 1 columns"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid x\n", "git lfs pull"),
        ("a.csv", "вопрос;ответ\nда;нет\n".encode("cp1251"), "Name its encoding, encoding = "),
        ("a.csv", "問題,答え\n日本,東京\n".encode("shift_jis"), "not UTF-8"),
        (
            "a.csv",
            (LINES * 9).encode()[:-12] + b"\xc3,1\n",
            "not UTF-8, but the rest of the file is",
        ),
        (
            "a.jsonl",
            b'{"question": "Caf\xe9", "answer": "1"}\n',
            "line 1. It looks like Windows-1252",
        ),
        ("a.csv", b"Which is 0+0?,0,1,A\nWhich is 1+1?,2,3,A\n", r"looks like a row.* all 4"),
        ("a.csv", b"0,1\n1,2\n", "Are the names missing"),
        ("a.csv", b"question,answer,answer\na,b,c\n", "two columns have the name 'answer'"),
        ("a.csv", b'question,answer\n"a "b" c",1\n', "line 2: a quote inside a quoted cell"),
        ("a.csv", b'question,answer\na,1\n"b,2\n', "line 3: a quoted cell begins here"),
        ("a.csv", b"question,answer\nA, b and c,1\n", "3 cells, but there are 2.*needs quotes"),
        ("a.jsonl", b"question,answer\n1,2\n", "line 1: not JSON"),
        ("a.jsonl", b"{'question': 'a'}\n", "Python notation"),
        ("a.json", b'[{"question": "a"},\n{"question": ]', "line 2: not JSON in column 14"),
        ("a.json", b'[{"question": "a"}', "it ends too early"),
        (
            "a.json",
            b'{"train": [{"a": 1}], "test": [{"a": 2}]}',
            "several lists of rows, 'tr",
        ),
        ("a.jsonl", b'["a", "1"]\n["b", "2"]\n', r"line 1: not a JSON object; columns = "),
        ("a.xlsx", b"PK\x03\x04" + bytes(99), "save the sheet as CSV"),
        ("a.jsonl", b"version https://git-lfs.github.com/spec/v1\noid x\n", "git lfs pull"),
        ("a.jsonl", b"<!DOCTYPE html><html>", "a web page"),
        ("a.jsonl.gz", b"\x1f\x8b\x08damaged", "gzip data is damaged"),
        ("a.bin", bytes(range(1, 9)) * 99, "is neither text"),
        ("a.jsonl.zst", b"\x28\xb5\x2f\xfd" + bytes(9), "zstd -d"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_cause(
    name: str, content: bytes, cause: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FamilyError, match=cause) as caught:
        list(read_records(name, tmp_path))
    assert "\n" not in str(caught.value)


def test_a_stated_encoding_and_stated_names_are_used(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(LINES.encode("cp1252"))
    (_, row), _ = read_records("a.csv", tmp_path, ReadOptions(encoding="cp1252"))
    assert row == {"question": "Café 1?", "answer": "1"}
    with pytest.raises(FamilyError, match="Python knows no encoding 'cp9'"):
        list(read_records("a.csv", tmp_path, ReadOptions(encoding="cp9")))
    (tmp_path / "b.csv").write_text("Which?,0,1,A\nWhat?,2,3,B\n")
    named = ReadOptions(columns=("question", "a", "b", "answer"))
    assert [row["answer"] for _, row in read_records("b.csv", tmp_path, named)] == ["A", "B"]
    with pytest.raises(FamilyError, match="line 1: 4 cells, but there are 2 columns"):
        list(read_records("b.csv", tmp_path, ReadOptions(columns=("question", "answer"))))
    (tmp_path / "e.txt").write_text("What is a, b?\nWhy, then, not?\nWho?\n")
    one = ReadOptions(columns=("question",))
    assert [row["question"] for _, row in read_records("e.txt", tmp_path, one)][
        1
    ] == "Why, then, not?"
    (tmp_path / "f.csv").write_text("question\nWhat is a, b?\nWhy, then, not?\n")
    assert [len(row) for _, row in read_records("f.csv", tmp_path)] == [1, 1]
    for columns in ([1], [""], ["a", "a"]):
        with pytest.raises(FamilyError, match="columns must be different names"):
            ReadOptions.of({"columns": columns})
    (tmp_path / "c.json").write_text('[["question", "answer"], ["a", 1]]')
    pairs = ReadOptions(columns=("question", "answer"))
    assert [row["answer"] for _, row in read_records("c.json", tmp_path, pairs)] == [1]
    (tmp_path / "c.jsonl").write_text('["a", 1]\n["b", 2]\n')
    pairs = ReadOptions(columns=("question", "answer"))
    assert [row["answer"] for _, row in read_records("c.jsonl", tmp_path, pairs)] == [1, 2]
    # A first line with a column of the task file is a header, however odd the other names.
    (tmp_path / "d.csv").write_text("frage,1,2\nWas?,a,b\n")
    wanted = ReadOptions(wanted=frozenset({"frage"}))
    assert len(list(read_records("d.csv", tmp_path, wanted))) == 1


@pytest.mark.parametrize(
    ("content", "description"),
    [
        (LINES.encode(), "CSV"),
        (LINES.replace(",", ";").encode("utf-16"), "CSV, separated by ;, UTF-16"),
        (b"sep=|\nquestion|answer\na|b\n", "CSV, separated by |"),
        (LINES.replace(",", "\t").encode("utf-8-sig"), "CSV, separated by tabs, UTF-8"),
        (b'{"question": "a"}\n', "JSON lines"),
        (b'[{"question": "a"}]\n', "JSON"),
    ],
)
def test_a_form_is_described_in_words(content: bytes, description: str, tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(content)
    assert recognise("rows", tmp_path).description == description


def test_a_conversation_in_the_only_row_is_not_a_list_of_rows(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text('{"messages": [{"role": "user", "content": "a"}]}')
    found = recognise("rows", tmp_path)
    assert found.form is DataForm.JSON_LINES and len(list(found.records)) == 1


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return data with a few bytes changed, removed, doubled or inserted."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        piece = rng.choice(
            [b"\0", b"\xff", b"\xef\xbb\xbf", b'"', b"{", b"}", b"[", b",", b"\r", b"\n", b"\\u00"]
        )
        data = rng.choice(
            [
                data[:at] + piece + data[at:],
                data[:at],
                data[at:],
                data[:at] + data[at + 1 :],
                data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
                data + data[:at],
            ]
        )
    return data


def check_damaged(seeds: range, folder: Path) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        written = rng.choice([write_json, write_json, write_table])(rng, folder)
        written.path.write_bytes(mutated(rng, written.path.read_bytes()))
        try:
            placed = list(read_records(written.path.name, folder))
            shaper = RowShaper(RowKeys(), [record for _, record in placed])
            for place, record in placed:
                shaper.shape(record, place).line.encode(errors="surrogatepass")
        except FamilyError as error:
            assert "\n" not in str(error), (seed, written.form)
        written.path.unlink()


def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    check_damaged(range(600), tmp_path)


@pytest.mark.slow
def test_many_damaged_files_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    check_damaged(range(10_000, 18_000), tmp_path)

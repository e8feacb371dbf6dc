"""Data files in common formats, written from known rows by a seeded generator."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

WORDS = (
    *("sum", "Café", "naïve", "x < y", "3,5", "a; b", "a|b", 'say "hi"', "tab\there", "two\nlines"),
    *("日本", "Ω\u2028end", "\\frac{1}{2}", "{a}", "it's", "#1", "  ", "50 %", "😀", "\x85"),
)
TEXT_ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32")
NAMES = ("question", "answer", "level", "Column two", "naïve", "a.b")


@dataclass(frozen=True)
class Written:
    """One data file and its expected rows."""

    path: Path
    rows: list[Row]
    form: str


def text_of(rng: random.Random) -> str:
    """Return a text that is not blank."""
    words = [rng.choice(WORDS) for _ in range(rng.randint(1, 4))]
    return f"q{rng.randint(0, 999)} {' '.join(words)}"


def value_of(rng: random.Random, depth: int = 0) -> Any:
    """Return a value of any JSON type."""
    kinds: list[Callable[[], Any]] = [
        lambda: text_of(rng),
        lambda: rng.randint(-(10**9), 10**9),
        lambda: rng.choice([0.5, -1.25, 1e-9, 3.0]),
        lambda: rng.random() < 0.5,
        lambda: None,
    ]
    if depth < 2:
        kinds.append(lambda: [value_of(rng, depth + 1) for _ in range(rng.randint(0, 3))])
        kinds.append(lambda: {f"k{n}": value_of(rng, depth + 1) for n in range(rng.randint(1, 3))})
    return rng.choice(kinds)()


def rows_of(rng: random.Random, value: Callable[[], Any]) -> list[Row]:
    """Return rows with the same columns."""
    names = NAMES[: rng.randint(2, len(NAMES))]
    return [
        {name: text_of(rng) if name == "question" else value() for name in names}
        for _ in range(rng.randint(2, 6))
    ]


def write_json(rng: random.Random, folder: Path, rows: list[Row] | None = None) -> Written:
    """Write JSON in one of its forms and one of Unicode's encodings."""
    rows = rows or rows_of(rng, lambda: value_of(rng))
    is_ascii, end = rng.random() < 0.5, rng.choice(["\n", "\r\n"])

    def dump(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=is_ascii, indent=indent)

    forms: dict[str, Callable[[], str]] = {
        "lines": lambda: "".join(dump(row) + end for row in rows),
        "lines, blank ones between": lambda: f"{end}{end}".join(map(dump, rows)),
        "no end": lambda: end.join(map(dump, rows)),
        "objects over lines": lambda: "\n".join(dump(row, 2) for row in rows),
        "list": lambda: dump(rows, rng.choice([None, 2])),
        "list in an object": lambda: dump({"version": "1.0", "data": rows}, rng.choice([None, 1])),
        "only list": lambda: dump({"mine": rows}),
        "columns": lambda: dump({name: [row[name] for row in rows] for name in rows[0]}),
        "pandas columns": lambda: dump(
            {name: {str(n): row[name] for n, row in enumerate(rows)} for name in rows[0]}
        ),
        "pandas index": lambda: dump({str(n): row for n, row in enumerate(rows)}),
        "pandas split": lambda: dump(
            {
                "columns": list(rows[0]),
                "index": list(range(len(rows))),
                "data": [list(row.values()) for row in rows],
            }
        ),
    }
    form = rng.choice(list(forms))
    encoding = rng.choice(TEXT_ENCODINGS)
    data = forms[form]().encode(encoding)
    name = rng.choice(["rows.jsonl", "rows.json", "rows.ndjson", "rows", "rows.txt", "rows.csv"])
    return _written(rng, folder / name, data, rows, f"{form}, {encoding}, {name}")


def write_table(rng: random.Random, folder: Path, rows: list[Row] | None = None) -> Written:
    """Write a table of texts, with any separator, encoding, quoting and line ends."""
    rows = rows or rows_of(rng, lambda: text_of(rng))
    separator, encoding = rng.choice(",;\t|"), rng.choice(TEXT_ENCODINGS)
    quoting: Any = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    file = io.StringIO()
    cells = csv.writer(
        file, delimiter=separator, quoting=quoting, lineterminator=rng.choice(["\n", "\r\n"])
    )
    names = list(rows[0])
    is_padded = rng.random() < 0.3
    cells.writerow([f" {name} " if is_padded and n else name for n, name in enumerate(names)])
    is_empty_end = rng.random() < 0.2
    for row in rows:
        cells.writerow(list(row.values()))
    if is_empty_end:
        cells.writerow([""] * len(names))
    name = rng.choice(["rows.csv", "rows.tsv", "rows.txt", "rows", "rows.dat"])
    form = f"table by {separator!r}, {encoding}, {name}{', padded' if is_padded else ''}"
    if is_padded and separator != "\t":  # a blank after each separator is removed in cells too
        rows = [{key: text.lstrip(" ") for key, text in row.items()} for row in rows]
    return _written(rng, folder / name, file.getvalue().encode(encoding), rows, form)


def write_binary(rng: random.Random, folder: Path, rows: list[Row] | None = None) -> Written:
    """Write Parquet or an Arrow file."""
    import pyarrow.feather
    import pyarrow.parquet

    shape = rng.choice(["text", "number", "list", "struct", "float"])
    values: dict[str, Callable[[], Any]] = {
        "text": lambda: text_of(rng),
        "number": lambda: rng.randint(-9, 9),
        "list": lambda: [text_of(rng) for _ in range(rng.randint(0, 2))],
        "struct": lambda: {"style": "rule", "truth": rng.choice([None, text_of(rng)])},
        "float": lambda: rng.choice([0.333, 0.1, 1e-7, 123456.7, None]),
    }
    shape, rows = ("text", rows) if rows else (shape, rows_of(rng, values[shape]))
    table = pyarrow.Table.from_pylist(rows)
    if shape == "float":
        short = pyarrow.schema(
            [
                pyarrow.field(one.name, pyarrow.float32() if one.name != "question" else one.type)
                for one in table.schema
            ]
        )
        table = table.cast(short)
    name = rng.choice(["rows.parquet", "rows.bin", "rows.arrow"])
    if rng.random() < 0.7:
        pyarrow.parquet.write_table(table, folder / name)
    else:
        name = "rows.feather"
        pyarrow.feather.write_feather(table, folder / name, compression="uncompressed")
    return Written(folder / name, rows, f"{shape} in {name}")


def _written(
    rng: random.Random, path: Path, data: bytes, rows: Sequence[Row], form: str
) -> Written:
    if rng.random() < 0.1:
        data, path = gzip.compress(data, 1), path.with_name(f"{path.name}.gz")
    path.write_bytes(data)
    return Written(path, list(rows), form)

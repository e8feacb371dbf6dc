"""Converts the user's data to a rows file, which the task worker reads and peers agree on.

    data file ─ read_records ─▶ records ─ RowShaper ─▶ rows ─▶ by question ─▶ one JSON object a line
                                                                              in this user's cache

Every data file is converted, so the sandboxed worker reads only one format, and the same rows in
another format are the same family. A line has the keys `question` and `answer`, and `columns` with
the file's own columns if the user's program scores. Repeated rows are dropped. Rows of held-out
questions come last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from shoal_base.cache_folder import cache_folder
from shoal_base.files import write_atomically
from shoal_tasks.conversion_cache import conversion_path, read_conversion, write_conversion
from shoal_tasks.data_files import (
    HUB,
    MAX_FILE_BYTES,
    ReadOptions,
    is_folder,
    read_file,
    read_records,
)
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import Placed
from shoal_tasks.questions import (
    BY_QUESTION,
    BY_TEXT,
    RepeatedQuestions,
    SplitRows,
    default_held_out,
    question_key,
)
from shoal_tasks.row_shapes import (
    MAX_ROW_QUESTION_CHARS,
    RowError,
    RowKeys,
    RowShaper,
    ShapedRow,
)
from shoal_tasks.rows import FIRST_ROWS, file_digest, worked_answers_path

_SHOWN_CHARS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsFile:
    """A rows file in the cache, and what was found during the conversion."""

    path: Path
    sha256: str
    num_questions: int
    """Number of distinct questions, including held-out ones."""
    num_held_out: int
    split: str
    """`BY_QUESTION` or `BY_TEXT`."""
    system: str
    """The system turn of all rows; empty if there is none, or several."""
    notes: tuple[str, ...]
    """Lines for the user about the data: what was dropped, and why."""
    worked_sha256: str
    """SHA-256 in hexadecimal of the worked answers' file; empty without one."""

    def is_whole(self) -> bool:
        """Return whether the cached files are unchanged. Raises `OSError`."""
        worked = worked_answers_path(self.path)
        return file_digest(self.path.read_bytes()) == self.sha256 and (
            not self.worked_sha256 or file_digest(worked.read_bytes()) == self.worked_sha256
        )


def make_rows_file(
    source: str, folder: Path, keys: RowKeys, options: ReadOptions | None = None
) -> RowsFile:
    """Convert a data set to a rows file in the cache, named by its own digest.

    A relative `source` is resolved in `folder`. Blocks. Raises `FamilyError`.
    """
    path = folder / source
    is_file = not source.startswith(HUB) and not is_folder(path)
    remembered = conversion_path(read_file(path), keys, options) if is_file else None
    made = read_conversion(remembered, RowsFile, RowsFile.is_whole)
    if made is None:
        made = _convert(source, folder, keys, options)
        write_conversion(remembered, made)
    return made


def _convert(source: str, folder: Path, keys: RowKeys, options: ReadOptions | None) -> RowsFile:
    records = list(read_records(source, folder, options))
    shaper = RowShaper(keys, [record for _, record in records])
    rows = _shaped_rows(source, records, shaper)
    shaper.check()
    rows, system, of_system = _with_system(rows, keys)
    split = BY_TEXT if keys.case_matters else BY_QUESTION
    question_keys = [question_key(row.question, split) for row in rows]
    repeated = RepeatedQuestions.of(question_keys)
    if keys.is_compared:
        _check_repeated(source, rows, question_keys, keys)
    num_held_out = _num_held_out(keys, repeated)
    by_question = SplitRows.of(question_keys, rows, num_held_out)
    kept = [
        row
        for group in (*by_question.training, *by_question.held_out)
        for row in _different(group, keys)
    ]
    data = b"".join(f"{row.line}\n".encode(errors="surrogatepass") for row in kept)
    if len(data) > MAX_FILE_BYTES:
        raise FamilyError(
            f"{source}: its rows are {len(data):,} bytes, the limit is {MAX_FILE_BYTES:,}"
        )
    texts = {row.question: row.worked for row in kept[:FIRST_ROWS]}
    worked = json.dumps(texts).encode() if any(texts.values()) else b""
    path = _keep(data, worked)
    return RowsFile(
        path=path,
        sha256=file_digest(data),
        num_questions=repeated.num_questions,
        num_held_out=num_held_out,
        split=split,
        system=system,
        notes=tuple(note for note in (repeated.sentence, of_system, *shaper.notes) if note),
        worked_sha256=file_digest(worked) if worked else "",
    )


def _shaped_rows(source: str, records: Sequence[Placed], shaper: RowShaper) -> list[ShapedRow]:
    """Return all rows. Raises `FamilyError`: the first unusable row, and how many are alike."""
    rows: list[ShapedRow] = []
    first: RowError | None = None
    num_rows = num_alike = 0
    for place, record in records:
        num_rows += 1
        try:
            rows.append(shaper.shape(record, place))
        except RowError as error:
            first = first or error
            num_alike += error.kind == first.kind
    if first is not None:
        others = f" ({num_alike:,} of {num_rows:,} rows have this fault)" if num_alike > 1 else ""
        raise FamilyError(f"{source}, {first}{others}")
    if not rows:
        raise FamilyError(f"{source} has no rows")
    return rows


def _with_system(rows: Sequence[ShapedRow], keys: RowKeys) -> tuple[list[ShapedRow], str, str]:
    """Return the rows, the system turn that they share, and a line for the user about it.

    The task file's own system turn replaces those of the rows. Different ones are put before the
    questions, since a family has only one. Raises `FamilyError`: a question becomes too long.
    """
    systems = dict.fromkeys(row.system for row in rows)
    if keys.system or len(systems) == 1:
        (first, *_), is_replaced = systems, bool(keys.system and any(systems))
        note = "the rows' own system turns are not used: the task file has the key system"
        return list(rows), keys.system or first, note if is_replaced else ""
    joined = []
    for row in rows:
        question = f"{row.system}\n\n{row.question}" if row.system else row.question
        if len(question) > MAX_ROW_QUESTION_CHARS:
            size = f"{len(question):,} characters; the limit is {MAX_ROW_QUESTION_CHARS:,}"
            raise FamilyError(f"{row.place}: question has {size}, with its system turn")
        joined.append(replace(row, question=question))
    note = (
        f"the rows have {len(systems):,} different system turns, which are put before their "
        "questions"
    )
    return joined, "", note


def _num_held_out(keys: RowKeys, repeated: RepeatedQuestions) -> int:
    """Return the number of held-out questions. Raises `FamilyError`."""
    count = repeated.num_questions
    held_out = default_held_out(count) if keys.held_out is None else keys.held_out
    if not 0 <= held_out < count:
        of_rows = f" in {repeated.num_rows:,} rows" if repeated.num_repeated else ""
        raise FamilyError(
            f"held_out must be 0 to {count - 1}: the file has {count:,} different "
            f"question{'s' if count > 1 else ''}{of_rows}, and at least one is needed for training"
        )
    return held_out


def _check_repeated(
    source: str, rows: Sequence[ShapedRow], question_keys: Sequence[str], keys: RowKeys
) -> None:
    """Raise `FamilyError` that names both rows if one question has different answers.

    Answers that may be mathematically equal are compared by the worker, which has the library.
    """
    first: dict[str, ShapedRow] = {}
    found: tuple[ShapedRow, ShapedRow] | None = None
    conflicting: set[str] = set()
    for key, row in zip(question_keys, rows, strict=True):
        other = first.setdefault(key, row)
        if other.answer != row.answer and not (keys.is_maths and _may_be_equal(other, row)):
            found = found or (other, row)
            conflicting.add(key)
    if found is None:
        return
    one, other = found
    more = f" ({len(conflicting):,} such questions)" if len(conflicting) > 1 else ""
    is_same = one.question == other.question
    raise FamilyError(
        f"{source}: {one.place} and {other.place} ask the same question with different answers, "
        f"{_short(one.answer)} and {_short(other.answer)}{more}; keep one of them"
        + ("" if is_same else ", or set case_matters = true: they differ in case or white space")
    )


def _may_be_equal(one: ShapedRow, other: ShapedRow) -> bool:
    """Return whether two texts may be equal as mathematics."""
    try:
        return float(one.answer) == float(other.answer)
    except ValueError:
        return True


def _different(group: Sequence[ShapedRow], keys: RowKeys) -> Iterator[ShapedRow]:
    """Yield those rows of one question that are scored differently."""
    known: set[str] = set()
    for row in group:
        what = row.answer if keys.is_compared else row.line
        if what not in known:
            known.add(what)
            yield row


def _keep(data: bytes, worked: bytes) -> Path:
    """Write a rows file, and its worked answers if any. Raises `FamilyError`."""
    try:
        kept = cache_folder("rows")
        kept.mkdir(parents=True, exist_ok=True)
        path = kept / f"{file_digest(data)}.jsonl"
        write_atomically(path, data)
        if worked:
            write_atomically(worked_answers_path(path), worked)
    except LookupError as error:
        raise FamilyError(str(error)) from None
    except OSError as error:
        raise FamilyError(
            f"cannot write {error.filename}: {error.strerror}; set XDG_CACHE_HOME to another folder"
        ) from None
    return path


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")

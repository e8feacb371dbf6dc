"""Tasks from the rows of a file: one JSON object per line, as written by `rows_file`.

A seed selects a row, as it does a generated task, so tasks are sent as coordinates: a peer with the
same file makes the same task, and no sender can supply a false answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal_tasks.errors import FamilyError
from shoal_tasks.spec import FamilySpec, JsonValue

FIRST_ROWS: Final = 256
"""Number of first rows from which few-shot examples are chosen and on which a verifier is tried.
math-verify parses a formula in about a millisecond, and a worker should start within a second."""


MAX_ROW_BYTES: Final = 4 * 1024 * 1024
"""Longest row that is shown: a question has at most some hundred thousand characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task."""

    question: str
    answer: str
    """Empty only if the user's program scores, which may need no right answer."""
    columns: Mapping[str, JsonValue]
    """The data's own columns, passed to such a program; empty without one."""


def parse_rows(data: bytes, name: str) -> tuple[TaskRow, ...]:
    """Parse a rows file. Raises `FamilyError` that names the line."""
    return tuple(
        _row(line, f"{name}, line {number}") for number, line in enumerate(data.splitlines(), 1)
    )


def first_rows(path: Path, count: int) -> tuple[TaskRow, ...]:
    """Return the first rows of a rows file, without reading it whole.

    Raises `FamilyError`: it is not a rows file, or a row is longer than `MAX_ROW_BYTES`.
    """
    rows = []
    with path.open("rb") as file:
        for number in range(1, count + 1):
            line = file.readline(MAX_ROW_BYTES + 1)
            if len(line) > MAX_ROW_BYTES:
                raise FamilyError(
                    f"{path.name}, line {number}: longer than {MAX_ROW_BYTES:,} bytes"
                )
            if line:
                rows.append(_row(line, f"{path.name}, line {number}"))
    return tuple(rows)


def _row(line: bytes, where: str) -> TaskRow:
    try:
        value = json.loads(line)
        question, answer, columns = (value.get(key) for key in ("question", "answer", "columns"))
    except (ValueError, AttributeError, RecursionError):
        raise FamilyError(f"{where}: not a row of a rows file") from None
    if not (isinstance(question, str) and isinstance(answer, str)):
        raise FamilyError(f"{where}: not a row of a rows file")
    if not isinstance(columns, dict):
        return TaskRow(question=question, answer=answer, columns={})
    # Columns that equal question or answer are stored once.
    known = {"question": question, "answer": answer} if answer else {"question": question}
    return TaskRow(question=question, answer=answer, columns={**known, **columns})


def file_digest(data: bytes) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal, as in a family's configuration."""
    return hashlib.sha256(data).hexdigest()


def check_file(spec: FamilySpec, data: bytes, path: str, digest: object) -> None:
    """Raise `FamilyError` if a file is not the one that the family names."""
    if file_digest(data) != digest:
        raise FamilyError(f"family {spec.name!r}: {path} is not the swarm's file")


def worked_answers_path(path: Path) -> Path:
    """Return the path of a rows file's worked answers, which `answer_after` removed."""
    return path.with_suffix(".worked.json")


def read_worked_answers(spec: FamilySpec) -> dict[str, str]:
    """Return the worked answers of some rows, by question; empty if none are known.

    They only show a model how answers are written. They are not part of the family's digest, and a
    damaged file loses nothing else.
    """
    try:
        found = json.loads(worked_answers_path(Path(spec.path)).read_bytes()) if spec.path else {}
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        return {}
    return found

"""Tasks that are the rows of a file: one JSON object a line, with a question and an answer.

A row is named by a seed, like a generated task, so it travels as coordinates: a peer that has the
same file makes the same task, and one without it cannot be told another answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal_tasks.answers import MAX_ANSWER_CHARS
from shoal_tasks.data_files import Record, as_json, json_lines
from shoal_tasks.errors import FamilyError
from shoal_tasks.spec import FamilySpec, JsonValue

MAX_ROW_QUESTION_CHARS: Final = 32 * 1024
FIRST_ROWS: Final = 256
"""Rows at a file's start that are looked at: worked examples are chosen among them, and a verifier
is tried on them. math-verify reads a formula in about a millisecond, and a worker is to start
within a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task."""

    question: str
    answer: str
    """Empty only where a Python function gives the reward: it may need no right answer."""
    columns: Mapping[str, JsonValue]
    """Everything that the row has, which a Python reward is given."""


def parse_rows(data: bytes, name: str, *, is_answer_needed: bool = True) -> tuple[TaskRow, ...]:
    """Return the rows of a file. Raises `FamilyError` naming the file and the line at fault."""
    rows = [
        _row(value, f"{name}, {where}", is_answer_needed) for where, value in json_lines(data, name)
    ]
    if not rows:
        raise FamilyError(f"{name} has no rows")
    return tuple(rows)


def _row(value: Record, where: str, is_answer_needed: bool) -> TaskRow:
    question = checked_text(value.get("question"), "question", where, MAX_ROW_QUESTION_CHARS)
    answer = number_text(value.get("answer"))
    if answer is not None or is_answer_needed:
        answer = checked_text(answer, "answer", where, MAX_ANSWER_CHARS).strip()
    columns = {key: as_json(one) for key, one in value.items()}
    return TaskRow(question=question, answer=answer or "", columns=columns)


def number_text(value: Any) -> Any:
    """Return a number as the text that people write for it (5, not 5.0); other values unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def checked_text(value: Any, key: str, where: str, limit: int) -> str:
    """Return a text that can travel. Raises `FamilyError` naming `where` and `key`."""
    if not isinstance(value, str) or not value.strip() or "\0" in value or len(value) > limit:
        raise FamilyError(f"{where}: {key!r} must be a text of 1 to {limit} characters")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise FamilyError(f"{where}: {key!r} holds half a character")
    return value


def file_digest(data: bytes) -> str:
    """SHA-256 of a file's bytes, hexadecimal: what a family's configuration states."""
    return hashlib.sha256(data).hexdigest()


def check_file(spec: FamilySpec, data: bytes, path: str, digest: object) -> None:
    """Raise `FamilyError` where a file is not the one that the family names."""
    if file_digest(data) != digest:
        raise FamilyError(f"family {spec.name!r}: {path} is not the swarm's file")


def worked_beside(path: Path) -> Path:
    """Return where the workings of a converted rows file lie: `answer_after` cut them off."""
    return path.with_suffix(".worked.json")


def read_worked(spec: FamilySpec) -> dict[str, str]:
    """Return the worked answers of some rows by their questions; empty where none are known.

    They only show a model how an answer is written, so that nothing of them is in the family's
    digest and a spoilt file costs no more than them.
    """
    try:
        found = json.loads(worked_beside(Path(spec.path)).read_bytes()) if spec.path else {}
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        return {}
    return found

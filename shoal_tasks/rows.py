"""Tasks that are the rows of a file: one JSON object a line, with a question and an answer.

A row is named by a seed, like a generated task, so it travels as coordinates: a peer that has the
same file makes the same task, and one without it cannot be told another answer. Pure but for
`read_rows_file`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal_tasks.answers import MAX_ANSWER_CHARS
from shoal_tasks.data_files import as_json, read_file
from shoal_tasks.errors import FamilyError
from shoal_tasks.families import TRAIN_SEED_MIN
from shoal_tasks.spec import FamilySpec, JsonValue

MAX_ROW_QUESTION_CHARS: Final = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task."""

    question: str
    answer: str
    """Empty only where a Python function gives the reward: it may need no right answer."""
    columns: Mapping[str, JsonValue]
    """Everything that the row has, which a Python reward is given."""


def read_rows_file(path: str) -> bytes:
    """Return the bytes of a rows file. Raises `FamilyError` if it is unreadable or too large."""
    return read_file(Path(path))


def parse_rows(data: bytes, name: str, *, is_answer_needed: bool = True) -> tuple[TaskRow, ...]:
    """Return the rows of a file. Raises `FamilyError` naming the file and the line at fault."""
    rows = []
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            rows.append(_row(line, f"{name}, line {number}", is_answer_needed))
    if not rows:
        raise FamilyError(f"{name} has no rows")
    return tuple(rows)


def _row(line: bytes, where: str, is_answer_needed: bool) -> TaskRow:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise FamilyError(f"{where}: not JSON") from None
    if not isinstance(value, dict):
        raise FamilyError(f"{where}: not a JSON object")
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


class RowStream:
    """All items of a family of rows."""

    def __init__(self, spec: FamilySpec, data: bytes) -> None:
        """Raises `FamilyError` where the file is not the one that the family names."""
        if file_digest(data) != spec.config["sha256"]:
            raise FamilyError(f"family {spec.name!r}: {spec.path} is not the swarm's file")
        self.spec = spec
        is_answer_needed = not spec.has_python_reward
        self._rows = parse_rows(data, spec.path, is_answer_needed=is_answer_needed)
        if len(self._rows) != spec.config["rows"]:
            raise FamilyError(f"family {spec.name!r}: {spec.path} has {len(self._rows)} rows")
        held_out = spec.config["held_out"]
        assert isinstance(held_out, int)
        self._num_training = len(self._rows) - held_out
        self._held_out_texts = {_text(row) for row in self._rows[self._num_training :]}

    @property
    def rows(self) -> tuple[TaskRow, ...]:
        """All rows, in the file's order."""
        return self._rows

    def row(self, seed: int, index: int) -> TaskRow:
        """Return a row. Held-out seeds have the file's last rows to themselves."""
        number = seed + index
        num_held_out = len(self._rows) - self._num_training
        if seed < TRAIN_SEED_MIN and num_held_out:
            position = self._num_training + number % num_held_out
        else:
            position = number % self._num_training
        return self._rows[position]

    def is_held_out(self, row: TaskRow) -> bool:
        """Return whether a row's question, but for case and spaces, is among the held-out ones.

        A file may ask one question twice.
        """
        return _text(row) in self._held_out_texts


def _text(row: TaskRow) -> str:
    return " ".join(row.question.casefold().split())

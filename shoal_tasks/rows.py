"""Tasks that are the rows of a file: one JSON object a line, with a question and an answer.

A row is named by a seed, like a generated task, so it travels as coordinates: a peer that has the
same file makes the same task, and one without it cannot be told another answer. Pure but for
`read_rows_file`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal_tasks.answers import MAX_ANSWER_CHARS
from shoal_tasks.errors import FamilyError
from shoal_tasks.families import TRAIN_SEED_MIN
from shoal_tasks.spec import FamilySpec

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_ROW_QUESTION_CHARS: Final = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One task."""

    question: str
    answer: str


def read_rows_file(path: str) -> bytes:
    """The file's bytes. Raises `FamilyError` where it cannot be read or is too large."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise FamilyError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise FamilyError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    return data


def parse_rows(data: bytes, name: str) -> tuple[Row, ...]:
    """The rows of a file. Raises `FamilyError` naming the file and the line that is wrong."""
    rows = []
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            rows.append(_row(line, f"{name}, line {number}"))
    if not rows:
        raise FamilyError(f"{name} has no rows")
    return tuple(rows)


def _row(line: bytes, where: str) -> Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise FamilyError(f"{where}: not JSON") from None
    if not isinstance(value, dict):
        raise FamilyError(f"{where}: not a JSON object")
    bounds = {"question": MAX_ROW_QUESTION_CHARS, "answer": MAX_ANSWER_CHARS}
    for key, limit in bounds.items():
        text = value.get(key)
        if not isinstance(text, str) or not text.strip() or "\0" in text or len(text) > limit:
            raise FamilyError(f"{where}: {key!r} must be a text of 1 to {limit} characters")
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise FamilyError(f"{where}: {key!r} holds half a character")
    return Row(question=value["question"], answer=value["answer"].strip())


def file_digest(data: bytes) -> str:
    """SHA-256 of a file's bytes, hexadecimal: what a family's configuration states."""
    return hashlib.sha256(data).hexdigest()


class RowStream:
    """All items of a family of rows."""

    def __init__(self, spec: FamilySpec, data: bytes) -> None:
        """Raises `FamilyError` where the file is not the one that the family names."""
        if file_digest(data) != spec.config["sha256"]:
            raise FamilyError(f"family {spec.name!r}: {spec.path} is not the swarm's file")
        self.spec = spec
        self._rows = parse_rows(data, spec.path)
        if len(self._rows) != spec.config["rows"]:
            raise FamilyError(f"family {spec.name!r}: {spec.path} has {len(self._rows)} rows")
        held_out = spec.config["held_out"]
        assert isinstance(held_out, int)
        self._num_training = len(self._rows) - held_out
        self._held_out_texts = {_text(row) for row in self._rows[self._num_training :]}

    def row(self, seed: int, index: int) -> tuple[int, Row]:
        """Number and content of a row. Held-out seeds have the file's last rows to themselves."""
        number = seed + index
        num_held_out = len(self._rows) - self._num_training
        if seed < TRAIN_SEED_MIN and num_held_out:
            position = self._num_training + number % num_held_out
        else:
            position = number % self._num_training
        return position, self._rows[position]

    def is_held_out(self, row: Row) -> bool:
        """Whether a row's question stands, but for case and white space, among the held-out ones.

        A file may ask one question twice.
        """
        return _text(row) in self._held_out_texts


def _text(row: Row) -> str:
    return " ".join(row.question.casefold().split())

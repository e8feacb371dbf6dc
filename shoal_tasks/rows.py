"""Tasks that are the rows of a file: one JSON object a line, as `rows_file` writes it.

A row is named by a seed, like a generated task, so it travels as coordinates: a peer that has the
same file makes the same task, and one without it cannot be told another answer.
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
"""Rows at a file's start that are looked at: worked examples are chosen among them, and a verifier
is tried on them. math-verify reads a formula in about a millisecond, and a worker is to start
within a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task."""

    question: str
    answer: str
    """Empty only where a program of the user's scores: it may need no right answer."""
    columns: Mapping[str, JsonValue]
    """The data's own columns, which such a program is given; empty without one."""


def parse_rows(data: bytes, name: str) -> tuple[TaskRow, ...]:
    """Return the rows of a rows file. Raises `FamilyError` naming the line at fault."""
    return tuple(
        _row(line, f"{name}, line {number}") for number, line in enumerate(data.splitlines(), 1)
    )


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
    # Those that are the question and the answer stand in the file once.
    known = {"question": question, "answer": answer} if answer else {"question": question}
    return TaskRow(question=question, answer=answer, columns={**known, **columns})


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

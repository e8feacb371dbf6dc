"""A family of one's own in one TOML file: which rows, scored how.

name = "capitals"            # on the wire, unique in the swarm
rows = "capitals.jsonl"      # beside this file: {"question": …, "answer": …} a line
verifier = "exact"           # or "math": equal as mathematics, by math-verify
answer_format = "tagged"     # or "plain"
weight = 1.0
held_out = 10                # last rows, kept for evaluation; default: a tenth
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from shoal_base.toml_file import read_toml
from shoal_tasks.errors import FamilyError
from shoal_tasks.rows import file_digest, parse_rows, read_rows_file
from shoal_tasks.spec import (
    EXACT,
    MATH_VERIFY,
    ROWS_GENERATOR,
    VERIFIER_VERSIONS,
    FamilySpec,
)

_FIELDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "name": str,
    "rows": str,
    "verifier": str,
    "answer_format": str,
    "weight": (int, float),
    "held_out": int,
}
_VERIFIERS: Final = {"exact": EXACT, "math": MATH_VERIFY}


def load_task_files(paths: Sequence[str]) -> tuple[FamilySpec, ...]:
    """The families of these files, with the places of their rows.

    Raises `FamilyError`, one line that names the file and the key.
    """
    return tuple(load_task_file(Path(path)) for path in paths)


def load_task_file(path: Path) -> FamilySpec:
    """The family of one file. Raises `FamilyError`."""
    table = _read(path)
    rows_path = str((path.parent / table["rows"]).resolve())
    data = read_rows_file(rows_path)
    num_rows = len(parse_rows(data, rows_path))
    held_out = table.get("held_out", num_rows // 10)
    if not 0 <= held_out < num_rows:
        raise FamilyError(f"{path}: held_out must be 0 to {num_rows - 1}, fewer than the rows")
    verifier = _VERIFIERS[table.get("verifier", "exact")]
    try:
        return FamilySpec(
            name=table["name"],
            generator=ROWS_GENERATOR,
            config={"sha256": file_digest(data), "rows": num_rows, "held_out": held_out},
            weight=table.get("weight", 1.0),
            verifier=verifier,
            verifier_version=VERIFIER_VERSIONS[verifier],
            answer_format=table.get("answer_format", "tagged"),
            path=rows_path,
        )
    except FamilyError as error:
        raise FamilyError(f"{path}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        table = read_toml(path)
    except OSError as error:
        raise FamilyError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise FamilyError(str(error)) from None
    for key, value in table.items():
        if key not in _FIELDS:
            raise FamilyError(f"{path}: unknown key {key!r}; there are {', '.join(_FIELDS)}")
        if not isinstance(value, _FIELDS[key]) or isinstance(value, bool):
            raise FamilyError(f"{path}: {key} has the wrong type")
    for key in ("name", "rows"):
        if key not in table:
            raise FamilyError(f"{path}: {key} is missing")
    if table.get("verifier", "exact") not in _VERIFIERS:
        raise FamilyError(f"{path}: verifier must be one of {', '.join(_VERIFIERS)}")
    return table

"""Rows on a hub, as they travel: the keys that make them, never the rows.

    task file ─ hub_rows_of ─▶ JSON ─ (a Bundle) ─▶ write_hub_rows ─▶ the same rows, or an error

The receiver reads the data set itself, at the commit that the author named. The family's
configuration has the digest of the rows, so other keys or another data set are found out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shoal_base.files import write_atomically
from shoal_tasks.data_files import HUB, ReadOptions, is_pinned, read_file
from shoal_tasks.errors import FamilyError
from shoal_tasks.row_shapes import RowKeys
from shoal_tasks.rows_file import make_rows_file
from shoal_tasks.spec import canonical_json
from shoal_tasks.unit_tests.forms import KEYS

_REWARD: Final = "reward"
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("rows", "encoding", "question", "answer", "answer_after"), str),
    **dict.fromkeys(("prompt", "system", "verifier", _REWARD, *KEYS), str),
    **dict.fromkeys(("prompt_shows_answer", "case_matters"), bool),
    **dict.fromkeys(("first_choice", "held_out"), int),
    "choices": (str, list),
    "columns": list,
}
"""The keys of a task file on which its rows depend. Of `reward` only that there is one."""


def hub_rows_of(table: Mapping[str, Any]) -> str:
    """Return the keys that make the rows of a task file; empty if they are not on a hub.

    Raises:
        FamilyError: the data set may change, so that a receiver would make other rows.
    """
    if not str(table.get("rows", "")).startswith(HUB):
        return ""
    if not is_pinned(table["rows"]):
        raise FamilyError(
            f"share needs the data set's commit, since a branch changes: rows = "
            f'"{HUB}NAME@COMMIT", with the 40 digits that the hub shows'
        )
    kept = {key: table[key] for key in _TYPES if key in table}
    # The names of the author's files are not for others.
    return canonical_json({**kept, **({_REWARD: ""} if _REWARD in kept else {})})


def source_of(hub_rows: str) -> str:
    """Return the data set that a peer names. Raises `FamilyError`."""
    return str(_parse(hub_rows)["rows"])


def write_hub_rows(hub_rows: str, sha256: bytes, path: Path) -> None:
    """Read a data set as a peer describes it, and write its rows to `path`. Blocks, and downloads.

    Raises:
        FamilyError: it cannot be read, or its rows have another digest.
    """
    table = _parse(hub_rows)
    made = make_rows_file(table["rows"], Path(), RowKeys.of(table), ReadOptions.of(table))
    if made.sha256 != sha256.hex():
        raise FamilyError(f"the rows of {table['rows']} are not those of the swarm's family")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, read_file(made.path))
    except OSError as error:
        raise FamilyError(f"cannot write {path}: {error.strerror}") from None


def _parse(hub_rows: str) -> dict[str, Any]:
    """Return the keys in a peer's description. Raises `FamilyError`: one is not as described."""
    try:
        table = json.loads(hub_rows)
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict) or not all(_is_good(*one) for one in table.items()):
        raise FamilyError("its rows are described by keys that no task file has")
    # Never a path: a peer does not choose which file of this machine is read.
    if not is_pinned(table.get("rows", "")):
        raise FamilyError("its rows are not those of one commit of a data set on a hub")
    return table


def _is_good(key: str, value: object) -> bool:
    kinds = _TYPES.get(key)
    if kinds is None or not isinstance(value, kinds) or isinstance(value, bool) != (kinds is bool):
        return False
    return not isinstance(value, list) or all(isinstance(one, str) for one in value)

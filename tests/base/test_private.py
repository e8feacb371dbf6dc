"""No other user can read a data directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_base.private import private


@pytest.fixture(autouse=True)
def usual_mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_is_written_and_what_is_there_is_the_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    (folder / "checkpoints" / "round-000001" / "model").mkdir(parents=True)
    weights = folder / "checkpoints" / "round-000001" / "model" / "weights"
    there = [weights, *(folder / name for name in ("lock", "peers.json", "metrics.jsonl", "a.log"))]
    for path in there:
        path.write_text("")
    (tmp_path / "else.json").write_text("")
    (folder / "link.json").symlink_to(tmp_path / "else.json")
    (folder / "notes.md").write_text("a person's")
    with private(folder):
        (folder / "new").write_text("")
    (tmp_path / "after").write_text("")
    assert mode(folder) == mode(weights.parent) == 0o700
    assert {mode(path) for path in (*there, folder / "new")} == {0o600}
    for left in (tmp_path / "else.json", folder / "notes.md", tmp_path / "after"):
        assert mode(left) == 0o644


def test_an_empty_folder_becomes_private_and_one_of_other_things_does_not(tmp_path: Path) -> None:
    empty, other, shared = (tmp_path / name for name in ("empty", "other", "shared"))
    for folder in (empty, other, shared):
        folder.mkdir(mode=0o755)
    shared.chmod(0o1777)
    (other / "thesis.json").write_text("")
    for folder in (empty, other, shared, tmp_path / "missing"):
        with private(folder):
            pass
    assert [mode(empty), mode(other), mode(shared)] == [0o700, 0o755, 0o1777]
    assert mode(other / "thesis.json") == 0o644

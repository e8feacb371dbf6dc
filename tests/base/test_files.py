"""Files are written completely or not at all, are on disk, and leave no temporary file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shoal_base.files import create_atomically, read_at_most, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def test_a_file_is_replaced_whole_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert names(tmp_path) == ["file"]


def test_a_failed_write_leaves_the_old_file_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"one")

    def no_space(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"two")
    assert path.read_bytes() == b"one"
    assert names(tmp_path) == ["file"]


def test_content_is_on_disk_before_the_name_and_the_name_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "file", list[tuple[bool, bool]]()

    def note(descriptor: int) -> None:
        seen.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), path.exists()))

    monkeypatch.setattr(os, "fsync", note)
    write_atomically(path, b"one")
    path.unlink()
    create_atomically(path, b"one", mode=0o600)
    assert seen == [(False, False), (True, True)] * 2


def test_a_file_that_is_there_is_never_created_over(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a user's")
    with pytest.raises(FileExistsError):
        create_atomically(path, b"mine", mode=0o600)
    assert path.read_bytes() == b"a user's"
    assert names(tmp_path) == ["file"]


def test_permissions_are_the_requested_ones_less_the_umask(tmp_path: Path) -> None:
    secret, other = tmp_path / "secret", tmp_path / "other"
    previous = os.umask(0o022)
    try:
        create_atomically(secret, b"", mode=0o600)
        write_atomically(other, b"")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(other.stat().st_mode) == 0o644


def test_a_file_longer_than_it_may_be_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"four")
    assert read_at_most(path, 4) == b"four"
    with pytest.raises(ValueError, match="too long"):
        read_at_most(path, 3)

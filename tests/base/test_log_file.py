"""Logs that stay small: lines with their time, a bound in bytes, and a disk that is full."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_base.log_file import BoundedFile, LogLines, log_to_file


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    before = logger.level
    logger.setLevel(logging.INFO)
    yield logger
    logger.setLevel(before)


def held(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_the_newest_lines_are_kept_within_the_bound(tmp_path: Path) -> None:
    file = BoundedFile(tmp_path / "a.log", 1000)
    for number in range(500):
        file.append(b"line %d\n" % number)
        assert held(tmp_path) <= 1000
    newest = (tmp_path / "a.log").read_text()
    before = (tmp_path / "a.log.1").read_text()
    assert newest.endswith("line 499\n")
    numbers = [int(line.split()[1]) for line in (before + newest).splitlines()]
    assert numbers == list(range(numbers[0], 500)), "none is missing in between"
    assert stat.S_IMODE((tmp_path / "a.log").stat().st_mode) == 0o600


def test_nothing_is_kept_with_no_bytes(tmp_path: Path) -> None:
    BoundedFile(tmp_path / "a.log", 0).append(b"line\n")
    assert not held(tmp_path)


def test_what_a_full_disk_does_not_take_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = BoundedFile(tmp_path / "a.log", 1000)
    file.append(b"first\n")
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        write(descriptor, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "write", half)
        file.append(b"lost\n")
        file.append(b"lost too\n")
    file.append(b"last\n")
    text = (tmp_path / "a.log").read_text()
    assert text == "first\n(2 writes before this line failed)\nlast\n"


def test_every_line_has_its_time(tmp_path: Path, log: logging.Logger) -> None:
    with log_to_file(tmp_path / "a.log", LogLines("node")):
        log.warning("%d peers", 3)
    log.warning("after")
    (line,) = (tmp_path / "a.log").read_text().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d WARNING node: 3 peers", line)


def test_lines_for_programs(tmp_path: Path, log: logging.Logger) -> None:
    with log_to_file(tmp_path / "a.log", LogLines("node", as_json=True)):
        try:
            raise ValueError("so")
        except ValueError:
            log.exception("it failed")
    line = json.loads((tmp_path / "a.log").read_text())
    assert line["level"] == "error" and line["process"] == "node" and line["message"] == "it failed"
    assert "ValueError: so" in line["traceback"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", line["time"])


def test_what_ends_the_process_stands_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), log_to_file(tmp_path / "a.log", LogLines("node")):
        _ = 1 / 0
    assert "ZeroDivisionError" in (tmp_path / "a.log").read_text()

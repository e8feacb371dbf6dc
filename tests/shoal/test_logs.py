"""`shoal logs`: what was logged, in one order, from the end, and as it grows."""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.__main__ import main
from shoal.log_lines import Growing, latest, logs_in, parsed, tail
from shoal_base.lines import guard_process
from shoal_base.log_file import BoundedFile, LogLines, log_to_file
from shoal_ipc.answers.form import to_json


@pytest.fixture(autouse=True)
def own_logging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    logger, factory = logging.getLogger(), logging.getLogRecordFactory()
    level = logger.level
    guard_process()
    logger.setLevel("DEBUG")
    yield
    logger.setLevel(level)
    logging.setLogRecordFactory(factory)


def write(folder: Path, name: str, *, as_json: bool = False) -> None:
    """Log three records as a process does: one with a traceback, one that would act."""
    folder.mkdir(exist_ok=True)
    log = logging.getLogger(f"tests.{name}")
    with log_to_file(folder / f"{name}.log", LogLines(name, as_json=as_json)):
        log.info("began\x1b[2J")
        try:
            raise ValueError("lost")
        except ValueError:
            log.exception("it failed")
        log.warning("ended")


@pytest.mark.parametrize("as_json", [False, True])
def test_what_processes_log_is_read_back(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "d", "node", as_json=as_json)
    write(tmp_path / "d", "trainer", as_json=as_json)
    assert main(["logs", "--data-dir", "d", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["schema_version"] for row in rows] == [1] * 6
    assert sorted(row["process"] for row in rows) == ["node"] * 3 + ["trainer"] * 3
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    failed = next(row for row in rows if row["level"] == "error")
    assert failed["message"] == "it failed"
    assert "ValueError: lost" in failed["traceback"]
    assert failed["logger"] == (f"tests.{failed['process']}" if as_json else None)
    assert main(["logs", "--data-dir", "d"]) == 0
    output = capsys.readouterr().out
    assert "INFO node: began\\x1b[2J" in output
    assert "    ValueError: lost" in output
    assert main(["logs", "--data-dir", "d", "--level", "warning", "--lines", "2"]) == 0
    output = capsys.readouterr().out
    assert len(re.findall(r"^\d.* (?:WARNING|ERROR) ", output, re.M)) == 2
    assert "INFO" not in output


def test_an_empty_log_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("missing", "n" * 300):
        assert main(["logs", "--data-dir", name]) == 3
        (line,) = capsys.readouterr().err.splitlines()
        assert f"nothing was logged in {name}" in line


def test_the_last_lines_reach_into_the_file_before(tmp_path: Path) -> None:
    file = BoundedFile(tmp_path / "node.log", 2000)
    for number in range(60):
        file.append(b"2026-11-22 10:00:%02d INFO node: line %d\n" % (number % 60, number))
    assert (tmp_path / "node.log.1").exists()
    shown = latest(logs_in(tmp_path), 30)
    assert [one.message for one in shown] == [f"line {n}" for n in range(30, 60)]
    assert len(tail(tmp_path / "node.log", 200)) == 200


@pytest.mark.parametrize("seed", range(30))
def test_a_growing_log_is_followed_through_its_changes_of_file(seed: int, tmp_path: Path) -> None:
    """Whatever is written between two looks, no line is lost or comes twice."""
    rng = random.Random(seed)
    path = tmp_path / "node.log"
    file = BoundedFile(path, 4000)
    if rng.random() < 0.5:
        file.append(b"2026-11-22 10:00:00 INFO node: before\n")
    growing, entries, written = Growing(path), [], 0
    for _ in range(40):
        # Two changes of file between two looks would lose lines: half a second is not that long.
        for _ in range(rng.randrange(0, 30)):
            file.append(b"2026-11-22 10:00:01 INFO node: %d\n" % written)
            written += 1
        if rng.random() < 0.3:  # half a line
            with path.open("ab") as raw:
                raw.write(b"2026-11-22 10:00:01 INFO")
            entries += growing.new_entries()
            with path.open("ab") as raw:
                raw.write(b" node: %d\n" % written)
            written += 1
        entries += growing.new_entries()
    assert [one.message for one in entries] == list(map(str, range(written)))


@given(st.lists(st.text(max_size=60) | st.just('{"time": 3}'), max_size=12))
@settings(max_examples=200)
def test_any_lines_are_read_without_an_error(lines: list[str]) -> None:
    for entry in parsed(["2026-11-22 10:00:00 INFO node: a", *lines]):
        assert to_json(entry)["schema_version"] == 1
        assert entry.lines()

"""`shoal watch` in a terminal: live, resized, the node gone and back, all left as it was."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pyte
import pytest

from shoal.__main__ import main
from shoal.watch.command import _foot
from tests.shoal.view.node_answers import DOCTOR, GIVEN, ME, STATUS
from tests.support.answering_node import answering_node

PATIENCE_S = 60.0


class Watched:
    """`shoal watch` in a terminal of its own, and what stands on that."""

    def __init__(
        self, data_dir: Path, columns: int = 80, rows: int = 24, *, keys: bool = True
    ) -> None:
        self._master, self._slave = pty.openpty()
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._size(columns, rows)
        self.before = termios.tcgetattr(self._slave)
        kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
        # Programs of a terminal get SIGINT; a background run of these tests ignores it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shoal", "watch", "--data-dir", str(data_dir)],
                stdin=self._slave if keys else subprocess.DEVNULL,
                stdout=self._slave,
                stderr=self._slave,
                env=kept | {"TERM": "xterm-256color", "PYTHONPATH": path},
            )
        finally:
            signal.signal(signal.SIGINT, before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    def _size(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, size)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        self._size(columns, rows)
        self._screen.resize(rows, columns)

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self._master)
        self._master = os.open(os.devnull, os.O_RDWR)

    def take_nothing(self) -> None:
        """Ctrl-S; return when the program waits in a write."""
        termios.tcflow(self._slave, termios.TCOOFF)
        waits = Path(f"/proc/{self.process.pid}/syscall")
        while waits.read_text().split()[0] not in ("1", "64"):  # write, on x86-64 and ARM
            assert self.process.poll() is None
            time.sleep(0.01)

    def press(self, key: str) -> None:
        """Press a key."""
        os.write(self._master, key.encode())

    @property
    def text(self) -> str:
        """What stands there."""
        return "\n".join(self._screen.display)

    def until(self, holds: Callable[[str], bool]) -> str:
        """Read until something stands there; return all of it."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(self.text):
            assert time.monotonic() < deadline, self.text
            self._read(0.1)
        return self.text

    def ended(self) -> int:
        """Wait for its end; return the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while (code := self.process.poll()) is None:
            assert time.monotonic() < deadline, self.text
            self._read(0.05)
        self.read_all()
        return code

    def read_all(self) -> None:
        """Read what a process that has ended, or stands still, has left."""
        while self._read(0.05):
            pass

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        data = os.read(self._master, 1 << 16)
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def assert_left_as_it_was(self) -> None:
        """The screen, the cursor and the keys are the shell's again."""
        for on, off in ((b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h")):
            assert self.raw.rfind(on) < self.raw.rfind(off)
        assert termios.tcgetattr(self._slave) == self.before


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "node"
    made.mkdir()
    yield made


@pytest.mark.slow
def test_the_node_comes_goes_and_comes_back(folder: Path) -> None:
    with Watched(folder) as watched:
        answers = {**GIVEN}
        with answering_node(folder, answers):
            watched.until(lambda text: "warn: Learning with 1 other node. disk" in text)
            answers["status"] = {**STATUS, "peers": 7, "round": 4711}
            watched.until(lambda text: "round 4711" in text)
        watched.until(
            lambda text: "no node answers here (for" in text and "own reward 0.360" in text
        )
        with answering_node(folder, GIVEN):
            watched.until(lambda text: "warn: Learning with 1 other node. disk" in text)
            watched.resize(40, 15)
            watched.until(lambda text: "\nlearning " in text)
            watched.press("x")
            watched.resize(120, 40)
            watched.until(lambda text: "Is it learning?" in text and "shoal export" in text)
            watched.press("q")
            assert watched.ended() == 0
        watched.assert_left_as_it_was()


def test_ended_by_ctrl_c_the_terminal_is_left_as_it_was(folder: Path) -> None:
    with Watched(folder) as watched:
        watched.until(lambda text: "no node answers here" in text)
        watched.process.send_signal(signal.SIGINT)
        assert watched.ended() == 0
        assert b"Traceback" not in watched.raw
        watched.assert_left_as_it_was()


def test_ctrl_z_gives_the_terminal_back_until_fg(folder: Path) -> None:
    with Watched(folder) as watched:
        watched.until(lambda text: "no node answers here" in text)
        watched.process.send_signal(signal.SIGTSTP)
        os.waitid(os.P_PID, watched.process.pid, os.WSTOPPED)
        watched.read_all()
        watched.assert_left_as_it_was()
        watched.process.send_signal(signal.SIGCONT)
        with answering_node(folder, GIVEN):
            watched.until(lambda text: "Learning with 1 other node" in text)
        watched.process.send_signal(signal.SIGTERM)
        assert watched.ended() == 0
        assert b"Traceback" not in watched.raw
        watched.assert_left_as_it_was()


def test_into_a_pipe_it_is_one_frame(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering_node(folder, GIVEN):
        assert main(["watch", "--data-dir", str(folder)]) == 0
        output = capsys.readouterr().out
        assert "Next steps" in output
        assert "\x1b" not in output
        assert main(["watch", "--data-dir", str(folder), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["peer_id"]) == (1, ME)
    assert found["health"]["findings"][1]["remedy"] == "make room"


def test_a_terminal_without_keys_has_one_frame(folder: Path) -> None:
    """As a script's has: what cannot be ended by a key ends by itself."""
    with answering_node(folder, GIVEN), Watched(folder, rows=60, keys=False) as watched:
        assert watched.ended() == 0
        assert "Next steps" in watched.text
        assert b"\x1b[?1049h" not in watched.raw


def test_a_reader_who_goes_away_ends_it_without_a_word(folder: Path) -> None:
    """``shoal watch | head -1``."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "shoal", "watch", "--data-dir", str(folder)]
    ended = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, check=False)
    os.close(writes)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_terminal_that_goes_away_ends_it(folder: Path) -> None:
    with Watched(folder) as watched:
        watched.until(lambda text: "no node answers here" in text)
        watched.hang_up()
        assert watched.process.wait(PATIENCE_S) == 0


def test_a_terminal_that_goes_away_while_it_is_written_to_ends_it(folder: Path) -> None:
    with Watched(folder) as watched:
        watched.until(lambda text: "no node answers here" in text)
        watched.take_nothing()
        watched.hang_up()
        assert watched.process.wait(PATIENCE_S) == 0


def test_an_old_answer_is_marked() -> None:
    assert "it has not answered for 7 s" in _foot(7.0)
    assert "answered" not in _foot(2.9)


def test_where_no_node_is_it_says_so_by_its_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "--data-dir", str(folder), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["health"]["state"] == "down"


def test_a_folder_that_is_not_there_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mistyped", "x" * 300):
        assert main(["watch", "--data-dir", str(folder / name)]) == 3
        assert "there is no folder" in capsys.readouterr().err


def test_an_older_node_is_shown_as_far_as_it_answers(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering_node(folder, {"status": STATUS, "doctor": DOCTOR}):
        assert main(["watch", "--data-dir", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["learning"]["reward_local"] == 0.36
    assert found["refused"]["counts"] == []

"""Output whose reader goes away, or takes nothing: real processes, pipes and terminals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import take_terminal, wait_for

COMMAND = """\
from shoal_base.output import end_with_the_reader, flush_output
end_with_the_reader()
for number in range({lines}):
    print("line", number)
flush_output()
"""
SERVING = """\
import sys, time, pathlib
from shoal_base.output import outlive_the_terminal
out = pathlib.Path(sys.argv[1])
outlive_the_terminal(lambda: out.with_name("hangup").write_text("so"))
print("up", flush=True)
for number in range(10**9):
    print("x" * 1000, flush=True)
    print("y" * 1000, file=sys.stderr)
    out.write_text(str(number))
    time.sleep(0.005)
"""


def serving(tmp_path: Path, stdout: int, stderr: int, **how: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SERVING, str(tmp_path / "number")]
    return subprocess.Popen(command, stdin=stdout, stdout=stdout, stderr=stderr, **how)  # type: ignore[call-overload]


def printed_number(tmp_path: Path) -> int:
    """How far it is; 0 while it says nothing."""
    path = tmp_path / "number"
    return int(path.read_text() or 0) if path.exists() else 0


def goes_on(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    """It works still, a while after; then end it as users do."""
    before = printed_number(tmp_path)
    wait_for(lambda: printed_number(tmp_path) > before + 20 or None, 20.0, "the work continues")
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("lines", [3, 100_000])
def test_a_command_ends_quietly_with_its_reader(lines: int) -> None:
    command = (
        f"{sys.executable} -c '{COMMAND.format(lines=lines)}' | head -1; echo ${{PIPESTATUS[0]}}"
    )
    shell = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert shell.stderr == ""
    first, code = shell.stdout.split("\n")[:2]
    assert first == "line 0"
    assert code in ("0", "141")


def test_a_command_whose_terminal_has_gone_ends_quietly(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    os.close(master)  # from now on what is written there is an input/output error
    with (tmp_path / "number").open("w+b") as output:
        command = [sys.executable, "-c", COMMAND.format(lines=3)]
        done = subprocess.run(command, stdout=slave, stderr=output, timeout=60, check=False)
        os.close(slave)
        output.seek(0)
        assert (done.returncode, output.read()) == (141, b"")


def test_a_full_disk_behind_a_redirection_is_reported() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND.format(lines=3)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "shoal: cannot write its output: No space left on device\n"


def test_who_serves_outlives_its_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    process = serving(tmp_path, writing, writing)
    os.close(writing)
    assert os.read(reading, 1)
    os.close(reading)
    goes_on(tmp_path, process)


def test_who_serves_outlives_a_terminal_that_closes(tmp_path: Path) -> None:
    """Of the terminal's own session, as under ssh: it is sent SIGHUP, and writing fails."""
    master, slave = pty.openpty()
    process = serving(tmp_path, slave, slave, preexec_fn=lambda: take_terminal(slave))
    os.close(slave)
    assert os.read(master, 1)
    os.close(master)
    wait_for(lambda: (tmp_path / "hangup").exists() or None, 20.0, "the hangup")
    goes_on(tmp_path, process)


def test_a_blocked_terminal_blocks_no_writer(tmp_path: Path) -> None:
    """As after Ctrl-S, or behind a network that is gone without a word."""
    master, slave = pty.openpty()
    process = serving(tmp_path, slave, slave)
    os.close(slave)
    try:
        wait_for(lambda: printed_number(tmp_path) > 300 or None, 30.0, "600 KB printed")
        goes_on(tmp_path, process)
    finally:
        os.close(master)


def test_closed_descriptors_get_no_file(tmp_path: Path) -> None:
    """`>&- 2>&-`: what is printed must not land in the first file that is opened."""
    program = (
        "from shoal_base.output import outlive_the_terminal; outlive_the_terminal();"
        f"file = open({str(tmp_path / 'file')!r}, 'w');"
        "print('text', flush=True); import sys; print('text', file=sys.stderr); file.close()"
    )
    command = f'{sys.executable} -c "{program}" <&- >&- 2>&-'
    assert subprocess.run(["bash", "-c", command], timeout=60, check=False).returncode == 0
    assert (tmp_path / "file").read_text() == ""

"""A data directory's owner and small files, and what neighbours make of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from shoal_p2p.data_dir import (
    ADDRESSES_FILE,
    DataDirInUseError,
    lock_data_dir,
    remembered_listen,
    sibling_addresses,
    why_silent,
    why_suspended,
    write_addresses,
)

PEER = "/p2p/12D3KooWAnn"


def owner_of(folder: Path) -> subprocess.Popen[str]:
    """Start a process that owns a folder, and says nothing else."""
    program = (
        "import sys, time; from pathlib import Path; from shoal_p2p.data_dir import lock_data_dir\n"
        "with lock_data_dir(Path(sys.argv[1])): print('mine', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(folder)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None and owner.stdout.readline()
    return owner


def until_stopped(pid: int) -> None:
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)


def test_an_owner_that_does_not_answer_is_named_with_its_state(tmp_path: Path) -> None:
    assert why_silent(tmp_path) is None
    assert why_silent(tmp_path / "gone") is None
    owner = owner_of(tmp_path)
    try:
        whose = f"process {owner.pid} uses {tmp_path} and does not answer: it is"
        assert (why_silent(tmp_path) or "").startswith(f"{whose} still starting")
        assert why_suspended(tmp_path) is None
        owner.send_signal(signal.SIGSTOP)
        until_stopped(owner.pid)
        suspended = f"{whose} suspended (`fg` in its terminal, or `kill -CONT {owner.pid}`)"
        assert why_silent(tmp_path) == why_suspended(tmp_path) == suspended
        with pytest.raises(DataDirInUseError, match=f"kill -CONT {owner.pid}"):
            lock_data_dir(tmp_path).__enter__()
        owner.send_signal(signal.SIGCONT)
    finally:
        owner.kill()
        owner.wait()
    assert why_silent(tmp_path) is None, "a dead process no longer uses it"
    with lock_data_dir(tmp_path):
        pass


@pytest.mark.parametrize("content", ["", "nonsense", "-1", "9" * 30])
def test_a_lock_that_names_no_process_is_read_all_the_same(tmp_path: Path, content: str) -> None:
    with lock_data_dir(tmp_path):
        (tmp_path / "lock").write_text(content)
        assert "does not answer" in (why_silent(tmp_path) or "")
        assert why_suspended(tmp_path) is None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_port_of_the_last_run_is_used_again(tmp_path: Path) -> None:
    port = free_port()
    write_addresses(tmp_path, [f"/ip4/192.0.2.1/tcp/{port}{PEER}"])
    listen = ["/ip4/127.0.0.1/tcp/0", "/ip4/0.0.0.0/tcp/0"]
    assert remembered_listen(listen, tmp_path) == (
        f"/ip4/127.0.0.1/tcp/{port}",
        f"/ip4/0.0.0.0/tcp/{port}",
    )


def test_a_configured_port_is_not_changed(tmp_path: Path) -> None:
    write_addresses(tmp_path, [f"/ip4/127.0.0.1/tcp/{free_port()}{PEER}"])
    assert remembered_listen(["/ip4/127.0.0.1/tcp/4001"], tmp_path) == ("/ip4/127.0.0.1/tcp/4001",)
    # And a port of the one family says nothing of the other.
    assert remembered_listen(["/ip6/::1/tcp/0"], tmp_path) == ("/ip6/::1/tcp/0",)


def test_a_port_in_use_is_replaced(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        write_addresses(tmp_path, [f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}{PEER}"])
        listen = ("/ip4/127.0.0.1/tcp/0",)
        assert remembered_listen(listen, tmp_path) == listen


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00", b"nonsense\n", b"/ip4/1.2.3.4/tcp/x/p2p/a", b"/ip4/1.2.3.4/udp/1"],
)
def test_a_damaged_file_of_addresses_is_no_obstacle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ADDRESSES_FILE).write_bytes(content)
    listen = ("/ip4/127.0.0.1/tcp/0",)
    assert remembered_listen(listen, tmp_path) == listen


def test_siblings_are_the_other_folders_next_to_this_one(tmp_path: Path) -> None:
    mine, theirs, third = (tmp_path / name for name in ("mine", "theirs", "third"))
    for folder in (mine, theirs, third):
        folder.mkdir()
    write_addresses(mine, [f"/ip4/127.0.0.1/tcp/1{PEER}"])
    write_addresses(theirs, [f"/ip4/127.0.0.1/tcp/2{PEER}", f"/ip6/::1/tcp/2{PEER}"])
    (third / ADDRESSES_FILE).write_bytes(b"\xff")
    assert sibling_addresses(mine) == (
        f"/ip4/127.0.0.1/tcp/2{PEER}",
        f"/ip6/::1/tcp/2{PEER}",
    )
    assert sibling_addresses(tmp_path / "gone" / "node") == ()


def test_many_neighbours_and_long_files_are_bounded(tmp_path: Path) -> None:
    for number in range(70):
        folder = tmp_path / f"node-{number:02}"
        folder.mkdir()
        lines = [f"/ip4/127.0.0.1/tcp/{i}{PEER}" for i in range(100)]
        (folder / ADDRESSES_FILE).write_text("\n".join(lines))
    found = sibling_addresses(tmp_path / "node-00")
    assert len(found) <= 64 * 64


HOLD = """
import sys, pathlib
from shoal_p2p.data_dir import lock_data_dir
with lock_data_dir(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_process_on_a_directory_is_refused(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'proto'}"},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        expected = pytest.raises(DataDirInUseError, match=f"process {holder.pid};")
        with expected as caught, lock_data_dir(tmp_path):
            pytest.fail("two owners")
        assert "\n" not in str(caught.value)
    finally:
        holder.kill()
        holder.wait()
    # kill -9 leaves the file behind, not the lock.
    with lock_data_dir(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    with lock_data_dir(tmp_path):
        pass

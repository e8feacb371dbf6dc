"""A swarm's key in an invitation: no process of the node that joins shows it to other users."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal_p2p.net.swarm_key import format_swarm_key, load_swarm_key
from shoal_wire.invite import decode_invite, encode_invite
from tests.shoal.test_invitations import SAMPLE
from tests.support.processes import LOOPBACK, ProcessManager, wait_for

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc"),
]

ROOT = Path(__file__).parents[2]
KEY = bytes(range(1, 33))


def private_line(stage: ProcessManager, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the invitation to a private swarm that is met here, as `shoal invite` prints it."""
    (folder / "kept.key").write_text(format_swarm_key(KEY))
    boot = stage.bootstrap("boot", "--swarm-key", str(folder / "kept.key"))
    command = ["invite", "--data-dir", str(boot.data_dir)]
    assert main(command) == 0
    output = capsys.readouterr()
    assert decode_invite(output.out.strip()).swarm_key is None
    assert "only loopback addresses are known" in output.err
    assert "lacks its key" in output.err
    assert main([*command, "--with-key", "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (report["reach"], report["with_key"]) == ("loopback", True)
    assert report["swarm"] == boot.ready_line["swarm"]
    assert KEY.hex() not in boot.log
    return str(report["line"])


def family(pid: int) -> list[int]:
    """Return a process and all that come from it."""
    found = [pid]
    for one in found:
        for tasks in Path(f"/proc/{one}/task").glob("*/children"):
            found += map(int, tasks.read_text().split())
    return found


def shown(pid: int) -> bytes:
    """Return what the list of processes has of one: its arguments, its environment, its name."""
    return b"\n".join(
        Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ", "comm")
    )


def has_nothing_of(line: str) -> Callable[[bytes], bool]:
    """Return whether text holds neither an invitation nor its key, nor a part of either."""
    parts = [line[at : at + 16].encode() for at in range(len(line) - 15)]
    return lambda text: not any(part in text for part in (KEY, KEY.hex().encode(), *parts))


@pytest.mark.slow
def test_no_process_of_a_joined_node_has_the_key_in_its_arguments_or_environment(
    stage: ProcessManager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = private_line(stage, tmp_path, capsys)
    assert decode_invite(line).swarm_key == KEY
    clean = has_nothing_of(line)
    flags = ("--listen", LOOPBACK, "--no-mdns", "--http", "127.0.0.1:0", "--rounds", "500")
    node = stage.process("join", "node", *flags, line).start()
    node.wait_status(lambda status: status["peers"] == 1, "to be connected")
    wait_for((node.data_dir / "page.json").exists, 60.0, "its page")
    kept = node.data_dir / "swarm.key"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert load_swarm_key(kept) == KEY
    # The node, its task worker, its trainer, which still loads torch, and the page.
    wait_for(lambda: len(family(node.pid)) >= 4, 60.0, "its processes")
    seen = {pid: shown(pid) for pid in family(node.pid)}
    assert any(b"trainer" in text or b"policy" in text for text in seen.values())
    assert [pid for pid, text in seen.items() if not clean(text)] == []
    assert clean((node.data_dir / "out.txt").read_bytes() + node.log.encode())
    assert clean((node.data_dir / "page.json").read_bytes())
    assert node.stop() == 0


def test_at_a_terminal_the_line_is_prompted_for(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "shoal", "join", "-", "--print-config"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as process:
        os.close(theirs)
        assert process.stderr is not None
        assert b"paste the invitation" in process.stderr.readline()
        os.write(ours, f"{encode_invite(SAMPLE)}\n".encode())
        output, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert "00" * 32 in output.decode()


def test_make_takes_no_line_into_its_arguments() -> None:
    done = subprocess.run(
        ["make", "-n", "join", "LINE=shoal1abc"], cwd=ROOT, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "make join alone" in done.stderr

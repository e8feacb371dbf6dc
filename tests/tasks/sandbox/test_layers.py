"""What a process in the sandbox cannot do, tried from inside by `probe.py`."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal_tasks.sandbox import seccomp
from shoal_tasks.sandbox.audit import AuditGuard

LINUX = sys.platform == "linux"


def probe(user: str, layers: str, folder: Path, lacking: str = "") -> dict[str, Any]:
    """Run the probe in ``folder``, which has one file that every user may read and write."""
    folder.chmod(0o777)
    existing = folder / "existing"
    existing.write_text("x")
    existing.chmod(0o666)
    for parent in (folder.parent, folder.parent.parent):
        parent.chmod(parent.stat().st_mode | 0o055)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        script = Path(__file__).with_name("probe.py")
        output = subprocess.run(
            [sys.executable, str(script), user, layers, str(folder), str(port), lacking],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert output.returncode == 0, output.stderr
    result: dict[str, Any] = json.loads(output.stdout)
    return result


@pytest.mark.parametrize("user", ["as_root", "as_user"])
def test_everything_is_refused_inside(user: str, tmp_path: Path) -> None:
    result = probe(user, "all", tmp_path)
    assert result["layers"]["rlimits"]
    assert result["layers"]["audit_hook"]
    succeeded = {name for name, error in result["refused"].items() if error is None}
    # Only the kernel can refuse calls that bypass the interpreter, and it needs a layer to do so.
    if not (result["layers"]["seccomp"] or result["layers"]["filesystem"]):
        succeeded -= {"call_libc", "share_memory", "make_semaphores", "make_a_queue", "watch_files"}
    assert succeeded == set()
    assert [path.name for path in tmp_path.iterdir()] == ["existing"]


@pytest.mark.skipif(not LINUX, reason="kernel layers are Linux's")
@pytest.mark.parametrize("user", ["as_root", "as_user"])
def test_the_kernel_alone_refuses_all_but_reading(user: str, tmp_path: Path) -> None:
    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip(f"no seccomp on {platform.machine()}")
    result = probe(user, "kernel", tmp_path)
    assert result["layers"]["seccomp"]
    succeeded = {name for name, error in result["refused"].items() if error is None}
    allowed = set() if result["layers"]["filesystem"] else {"read_users_file"}
    assert succeeded <= allowed
    assert [path.name for path in tmp_path.iterdir()] == ["existing"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the calls are numbered for x86-64")
@pytest.mark.parametrize("lacking", ["", "mounts", "landlock", "mounts landlock"])
@pytest.mark.parametrize("user", ["as_root", "as_user"])
def test_files_are_out_of_reach_and_libraries_in_it_by_one_layer_or_the_other(
    user: str, lacking: str, tmp_path: Path
) -> None:
    if user == "as_root" and os.geteuid() != 0:
        pytest.skip("needs root")
    result = probe(user, "kernel", tmp_path, lacking)
    layers, refused = result["layers"], result["refused"]
    has_own_root = "mounts" not in lacking
    has_landlock = "landlock" not in lacking and layers["landlock"]
    is_empty = not has_own_root and not has_landlock and user == "as_root"
    assert layers["filesystem"] == (has_own_root or is_empty), layers
    assert result["imports"] == (not is_empty)
    if has_own_root or has_landlock or is_empty:
        assert refused["read_users_file"]
    assert {name for name, why in refused.items() if why is None} <= {"read_users_file"}


def test_outside_the_same_attempts_succeed(tmp_path: Path) -> None:
    # Otherwise the tests above would prove nothing. Not `replace_process`: it ends the probe.
    script = Path(__file__).with_name("probe.py").read_text()
    patched = tmp_path / "probe_outside.py"
    patched.write_text(script.replace("    replace_process,\n", "").replace("2 << 30", "1 << 20"))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "existing").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        output = subprocess.run(
            [sys.executable, str(patched), "outside", "all", str(folder), port],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    refused = json.loads(output.stdout.splitlines()[-1])["refused"]
    # The file is removed before it is read; all other failures have no excuse.
    assert {name for name, error in refused.items() if error} <= {"read_users_file"}


def test_the_audit_hook_refuses_evaluation_only_while_scoring() -> None:
    code = (
        "from shoal_tasks.sandbox import audit\n"
        "guard = audit.AuditGuard()\n"
        "audit.install(guard)\n"
        "print(eval('1 + 1'))\n"
        "guard.scoring = True\n"
        "try:\n"
        "    eval('1 + 1')\n"
        "except PermissionError as error:\n"
        "    print(error)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()
    assert output == ["2", "refused in the task worker: evaluating text while scoring (eval, exec)"]


@pytest.mark.parametrize(
    ("event", "args", "refused"),
    [
        ("open", ("/etc/passwd", "r", os.O_RDONLY), True),
        ("open", (os.__file__, "r", os.O_RDONLY), False),
        ("open", (os.__file__, "r+", os.O_RDWR), True),
        ("open", (os.__file__, None, os.O_WRONLY), True),
        ("open", (f"{sys.base_prefix}/../etc/passwd", "r", 0), True),
        ("open", (7, "w", os.O_WRONLY), True),
        ("open", (), True),
        ("import", ("x", "/tmp/x.so", None, None, None), True),
        ("import", ("x", None, None, None, None), False),
        ("socket.connect", (None, ("127.0.0.1", 1)), True),
        ("subprocess.Popen", ("sh", ["sh"], None, None), True),
        ("os.system", (b"true",), True),
        ("ctypes.dlopen", (None,), True),
        ("exec", (None,), False),
        ("object.__getattr__", (None, "x"), False),
    ],
)
def test_audit_policy(event: str, args: tuple[object, ...], refused: bool) -> None:
    assert (AuditGuard().refusal(event, args) is not None) == refused


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_stays_inside_and_every_path_ends(machine: str) -> None:
    code = seccomp.program(machine)
    instructions = [code[start : start + 8] for start in range(0, len(code), 8)]
    assert len(instructions) < 4096
    for position, instruction in enumerate(instructions):
        opcode = int.from_bytes(instruction[:2], sys.byteorder)
        if opcode & 0x07 == 0x05:
            assert position + 1 + max(instruction[2], instruction[3]) < len(instructions)
    assert int.from_bytes(instructions[-1][:2], sys.byteorder) == 0x06

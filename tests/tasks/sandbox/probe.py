"""Run as a script: enters the sandbox, then tries what it must not be able to do.

Prints one JSON object: the layers, and for every attempt null where it succeeded, else the error.
Argument: ``as_root`` or ``as_user`` (drops to an ordinary user first), then which layers answer:
``all``, or ``kernel`` to leave the audit hook out and see what the kernel alone refuses.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from shoal_tasks.limits import WorkerLimits
from shoal_tasks.sandbox import audit
from shoal_tasks.sandbox import layers as sandbox
from shoal_tasks.types import Layer

LIBC = ctypes.CDLL(None, use_errno=True)
SOMEBODY = 12345


def open_for_writing(folder: str) -> None:
    Path(folder, "canary").write_text("x")


def append_to_existing(folder: str) -> None:
    os.close(os.open(Path(folder, "existing"), os.O_WRONLY | os.O_APPEND))


def make_directory(folder: str) -> None:
    Path(folder, "directory").mkdir()


def remove_file(folder: str) -> None:
    Path(folder, "existing").unlink()


def read_users_file(folder: str) -> None:
    Path(folder, "existing").read_text()


def open_socket(_folder: str) -> None:
    with socket.socket() as one:
        one.settimeout(1)
        one.connect(("127.0.0.1", int(sys.argv[4])))


def run_process(_folder: str) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True, timeout=10)


def run_shell(folder: str) -> None:
    if os.system(f"echo x > {folder}/canary") != 0:
        raise OSError("the shell did not run")


def fork(_folder: str) -> None:
    if os.fork() == 0:
        os._exit(0)


def replace_process(_folder: str) -> None:
    os.execv(sys.executable, [sys.executable, "-c", "print('null')"])


def call_libc(_folder: str) -> None:
    made = b"/tmp/shoal-probe-%d" % os.getpid()  # another run of the tests may be at it
    if LIBC.mkdir(made, 0o700) != 0:
        raise OSError(ctypes.get_errno(), "mkdir")
    LIBC.rmdir(made)


def kill_parent(_folder: str) -> None:
    os.kill(os.getppid(), 0)


def raise_limit(_folder: str) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))


def fill_memory(_folder: str) -> None:
    bytearray(2 << 30)


ATTEMPTS: tuple[Callable[[str], None], ...] = (
    open_for_writing,
    append_to_existing,
    make_directory,
    remove_file,
    read_users_file,
    open_socket,
    run_process,
    run_shell,
    fork,
    replace_process,
    call_libc,
    kill_parent,
    raise_limit,
    fill_memory,
)


def attempt(action: Callable[[str], None], folder: str) -> str | None:
    try:
        action(folder)
    except (OSError, ValueError, MemoryError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def main() -> None:
    user, layers, folder = sys.argv[1:4]
    if user == "as_user" and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(SOMEBODY, SOMEBODY, SOMEBODY)
        os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
    if user == "outside":
        reports: tuple[Layer, ...] = ()
    else:
        if layers == "kernel":
            audit.install = lambda guard: None
        reports = sandbox.enter(WorkerLimits(), audit.AuditGuard(), parent_pid=os.getppid())
    refused = {action.__name__: attempt(action, folder) for action in ATTEMPTS}
    print(json.dumps({"layers": {r.name: r.active for r in reports}, "refused": refused}))


if __name__ == "__main__":
    main()

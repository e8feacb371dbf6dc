"""Runs `shoal` commands from standard input, each in a fork, which saves their imports.

    python -m tests.support.forked_commands SECONDS MODULE…
        {"argv", "env", "files": {name: hex}, "torchless"} a line ─▶ {"code", "out", "err"} a line

A command has its own folder, no standard input, and SECONDS; then it is killed, and its code is
null. The forks have the given modules loaded. With `torchless`, a command that imports torch ends
with `TORCH`. Do not run commands that start processes: those would outlive them. Surrogates in
arguments stand for bytes that are not text, as a shell may pass them.
"""

from __future__ import annotations

import importlib
import importlib.abc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from shoal.__main__ import COMMANDS, is_installed, main
from shoal_base.output import drain_output

SECONDS = 20.0
"""Much longer than a command takes that starts nothing."""
UNCAUGHT = 98
"""Exit code of a command that ended by an exception."""
TORCH = 97
"""Exit code of a command that imported torch although it should not."""
_MAX_BYTES = 200_000
_LATE = ("shoal_p2p.live_command", "shoal_p2p.judge.live_command", "shoal_bootstrap.live_command")
"""Modules that commands import if their flags are valid."""


Run = Callable[..., dict[str, Any]]


@contextmanager
def open_forks(
    environment: Mapping[str, str] | None = None, *modules: str, seconds: float = SECONDS
) -> Iterator[Run]:
    """Start such a process; yield the function that runs a command: ``run(argv, env={},
    files={})``."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked_commands", str(seconds), *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as runner:
        lines, answers = runner.stdin, runner.stdout
        assert lines is not None and answers is not None

        def run(
            argv: Sequence[str],
            env: Mapping[str, str] | None = None,
            files: Mapping[str, bytes] | None = None,
            *,
            torchless: bool = False,
        ) -> dict[str, Any]:
            held = {name: content.hex() for name, content in (files or {}).items()}
            case = {"argv": argv, "env": env or {}, "files": held, "torchless": torchless}
            lines.write(json.dumps(case) + "\n")
            lines.flush()
            answer: dict[str, Any] = json.loads(answers.readline())
            return answer

        yield run
        lines.close()


def run_all(seconds: float, modules: Sequence[str]) -> None:
    """Answer line by line."""
    named = (one for each in COMMANDS.values() for one in (each.module, *each.parts.values()))
    for module in (*filter(is_installed, named), *_LATE, *modules):
        importlib.import_module(module)
    root = Path(tempfile.mkdtemp())
    try:
        for number, line in enumerate(sys.stdin):
            folder = root / str(number)
            print(json.dumps(_run(folder, json.loads(line), seconds)), flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _run(folder: Path, case: dict[str, Any], seconds: float) -> dict[str, Any]:
    work = folder / "work"
    work.mkdir(parents=True)
    for name, content in case["files"].items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(bytes.fromhex(content))
    child = os.fork()
    if child == 0:
        if case.get("torchless"):
            sys.meta_path.insert(0, _NoTorch())
        _become(work, folder, case["argv"], case["env"])
    code = _wait(child, seconds)
    return {"code": code, "out": _read(folder / "out"), "err": _read(folder / "err")}


def _become(work: Path, folder: Path, argv: Sequence[str], env: dict[str, str]) -> None:
    """Run the command in this process, and exit."""
    code = 99
    try:
        os.setsid()
        os.chdir(work)
        for name in [name for name in os.environ if name.startswith("SHOAL_")]:
            del os.environ[name]
        os.environ.update({"HOME": str(folder / "home"), "COLUMNS": "100", **env})
        for descriptor, name in (
            (0, "/dev/null"),
            (1, str(folder / "out")),
            (2, str(folder / "err")),
        ):
            flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT
            os.dup2(os.open(name, flags, 0o600), descriptor)
        try:
            code = main(argv)
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException as error:  # noqa: BLE001 - what it died of is what is asked
            sys.excepthook(type(error), error, error.__traceback__)
            code = UNCAUGHT
        drain_output()  # commands that serve write from threads
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


class _NoTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Ends the process on an import of torch, but lets code check whether torch is installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == "torch" else None
        if spec is not None:
            spec.loader = self
        return spec

    def exec_module(self, module: ModuleType) -> NoReturn:
        os._exit(TORCH)


def _wait(child: int, seconds: float) -> int | None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES).decode(errors="backslashreplace")


if __name__ == "__main__":
    run_all(float(sys.argv[1]), sys.argv[2:])

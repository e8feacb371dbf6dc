"""Runs pytest repeatedly without its imports: each run is a fork of a process that has them.

Half of a short test's time is the import of libraries, seconds for a node's. Third-party libraries
are imported once, but nothing of this project: each run imports it again, as in a new process. A
run is a line of JSON on standard input, its result a line on standard output. A line `{}` before
all runs means that the imports are done and files may change:

    {"arguments": ["-x", "tests/…"], "timeout_s": 900}  ─▶  {"code": 1, "output": "…"}

It is a script, run in the folder with the tests: ``python tests/support/warm_pytest.py TEST…``
imports what these tests need.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

_OWN = ("shoal_p2p", "shoal_policy", "shoal_bootstrap", "shoal", "tests", "benchmarks")


def is_own(module: str) -> bool:
    """Return whether a module belongs to this project, judging by its name."""
    return module.startswith(_OWN)


def main() -> None:
    """Serve until standard input ends."""
    root = Path.cwd()
    holders = ("p2p", "policy", "bootstrap", "proto", "lab")  # nothing of this project is imported
    rooms = (root, *(root / name for name in holders))
    sys.path[:1] = map(str, rooms)  # instead of this script's own folder
    for name in _imported_by(sys.argv[1:]):
        with contextlib.suppress(Exception):  # created by its package, without a file
            importlib.import_module(name)
    if own := [name for name in sys.modules if is_own(name)]:
        raise SystemExit(f"imported before any run: {own}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # also ends the current run
    print("{}", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        code, output = _run_forked(_test, request["arguments"], request["timeout_s"])
        print(json.dumps({"code": code, "output": output}), flush=True)


def _imported_by(tests: list[str]) -> list[str]:
    """Return the library modules that are loaded after collecting these tests."""
    code, output = _run_forked(_collect, tests, 600)
    if code:
        raise SystemExit(output)
    return list(json.loads(output.splitlines()[-1]))


def _collect(tests: list[str]) -> int:
    code = _test(["--collect-only", "-q", "-m", "slow or not slow", *tests])
    print("\n" + json.dumps([name for name in sys.modules if not is_own(name)]))
    return code


def _test(arguments: list[str]) -> int:
    return int(importlib.import_module("pytest").main(arguments))


def _run_forked(
    call: Callable[[list[str]], int], arguments: list[str], timeout_s: float
) -> tuple[int | None, str]:
    """Return the result of a call in a new process, None after a time-out, and its output."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            _be(call, arguments, output.fileno())
        try:
            code = _code_of(child, timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # and all its children
        if code is None:
            os.waitpid(child, 0)
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _be(call: Callable[[list[str]], int], arguments: list[str], output: int) -> NoReturn:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    random.seed()
    code = 99
    try:
        code = call(arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _code_of(child: int, timeout_s: float) -> int | None:
    """Return how it ended; None after a time-out."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return None


if __name__ == "__main__":
    main()

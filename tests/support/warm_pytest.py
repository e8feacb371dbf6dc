"""Runs pytest over and over without its imports: each run is a fork of a process that has them.

Half of what a short test takes is the import of libraries, seconds for a node's.  Those of others
are imported here once, nothing of this project: what a run imports of it is read anew, as in a
process of its own.  A run is a line of JSON on standard input, its end a line on standard output,
where a line `{}` says before all runs that the imports are over and files may change:

    {"arguments": ["-x", "tests/…"], "timeout_s": 900}  ─▶  {"code": 1, "output": "…"}

It is a script, in the folder whose tests it runs:  ``python tests/support/warm_pytest.py TEST…``
imports what these tests do.
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
    """Return whether a module is of this project, going by its name."""
    return module.startswith(_OWN)


def main() -> None:
    """Serve until standard input ends."""
    root = Path.cwd()
    holders = ("p2p", "policy", "bootstrap", "proto", "lab")  # nothing of ours is imported here
    rooms = (root, *(root / name for name in holders))
    sys.path[:1] = map(str, rooms)  # instead of this script's own folder
    for name in _imported_by(sys.argv[1:]):
        with contextlib.suppress(Exception):  # made by its package, and no file of its own
            importlib.import_module(name)
    if own := [name for name in sys.modules if is_own(name)]:
        raise SystemExit(f"imported before any run: {own}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # with the run that is under way
    print("{}", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        code, output = _run_forked(_test, asked["arguments"], asked["timeout_s"])
        print(json.dumps({"code": code, "output": output}), flush=True)


def _imported_by(tests: list[str]) -> list[str]:
    """Return the libraries' modules that are there once these tests are collected."""
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
    """Return what a call in a process of its own returns, None if not in time, and its output."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            _be(call, arguments, output.fileno())
        try:
            code = _code_of(child, timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # and all that it started
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
    """Return how it ended; None if it has not in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return None


if __name__ == "__main__":
    main()

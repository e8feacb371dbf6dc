"""One test after the other in a copy of the tree, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.support import warm_pytest
from tests.support.tree import ROOT, Tree

_FLAGS = ("-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "slow or not slow")
_QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")


class Runs:
    """Runs tests, slow or not."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, *tests: str, timeout_s: float) -> tuple[int | None, str]:
        """Return pytest's exit code, None if it timed out, and its output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"arguments": [*_FLAGS, *_QUIET, *tests], "timeout_s": timeout_s}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        done = json.loads(self._process.stdout.readline())
        return done["code"], done["output"]


@contextmanager
def open_runs(tree: Tree, tests: Iterable[str]) -> Iterator[Runs]:
    """Have the libraries of `tests` imported: see `warm_pytest`."""
    script = str(tree.folder / str(warm_pytest.__file__).removeprefix(f"{ROOT}/"))
    with subprocess.Popen(
        [sys.executable, script, *sorted(set(tests))],
        cwd=tree.folder,
        env=tree.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "{}\n", "the tests cannot be collected"
            yield Runs(process)
        finally:
            process.terminate()

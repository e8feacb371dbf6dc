"""Python processes of ours import our code, not that of the folder which somebody stands in.

`python -m` puts the current folder first on the import path, and so may PYTHONPATH: started in a
project with a `policy/` of its own, a node would run that in its trainer's place. A checkout that
is run where it lies is the one folder that is ours.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SAFE_PATH: Final = "PYTHONSAFEPATH"
PROGRAM: Final = "shoal"
START_S: Final = 120.0
"""Deadline for the start of a process of ours, which takes some two seconds: a slow, busy machine.
A guess."""
_ROOT: Final = Path(__file__).resolve().parents[1]
_OURS: Final = frozenset(
    {_ROOT, *(_ROOT / name for name in ("p2p", "policy", "bootstrap", "proto", "lab"))}
)


def python(*arguments: str) -> list[str]:
    """Return the command that runs this interpreter without the current folder's modules."""
    return [sys.executable, "-P", *arguments]


def environment() -> dict[str, str]:
    """Return this process's environment for a child, whose own children are started so too."""
    kept = {**os.environ, SAFE_PATH: "1"}
    if "PYTHONPATH" in kept:
        entries = kept["PYTHONPATH"].split(os.pathsep)
        kept["PYTHONPATH"] = os.pathsep.join(one for one in entries if not _is_foreign(one))
    return kept


@contextlib.contextmanager
def inherited() -> Iterator[None]:
    """Let processes that a library starts meanwhile have that environment."""
    before = dict(os.environ)
    os.environ.update(environment())
    try:
        yield
    finally:
        for name in (SAFE_PATH, "PYTHONPATH"):
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


def leave_as_program() -> None:
    """Do `leave_current_folder` where one of our packages is run, and not imported by somebody.

    For a package's first lines: what else it imports comes from where it belongs then.
    """
    # While `python -m` still looks for the module, that is what stands in its place.
    if sys.argv[:1] == ["-m"] or (sys.argv and Path(sys.argv[0]).name == PROGRAM):
        leave_current_folder()


def leave_current_folder() -> None:
    """Import nothing from the current folder from here on, in this process and those below it."""
    os.environ.update(environment())
    sys.path[:] = [entry for entry in sys.path if not _is_foreign(entry)]


def _is_foreign(entry: str) -> bool:
    """Return whether an entry of an import path is the current folder, and not shoal's own."""
    try:
        here = Path.cwd()
        return Path(entry).resolve() == here and here not in _OURS
    except OSError:  # the folder is gone
        return not entry

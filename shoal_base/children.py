"""Starts Python processes that import shoal's code, not modules of the current folder.

`python -m` puts the current folder first on the import path, and PYTHONPATH may, too: started in a
project with its own `policy/`, a node would run that as its trainer. The only exception is a
checkout of shoal from which it runs.
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
"""Deadline, in seconds, for a child process to start. It takes about two seconds, and more on a
slow, busy machine. A guess."""
_ROOT: Final = Path(__file__).resolve().parents[1]
_OURS: Final = frozenset(
    {_ROOT, *(_ROOT / name for name in ("p2p", "policy", "bootstrap", "proto", "lab"))}
)


def python(*arguments: str) -> list[str]:
    """Return the command that runs this interpreter without the current folder's modules."""
    return [sys.executable, "-P", *arguments]


def environment() -> dict[str, str]:
    """Return the environment for a child process, which its own children inherit."""
    kept = {**os.environ, SAFE_PATH: "1"}
    if "PYTHONPATH" in kept:
        entries = kept["PYTHONPATH"].split(os.pathsep)
        kept["PYTHONPATH"] = os.pathsep.join(one for one in entries if not _is_foreign(one))
    return kept


@contextlib.contextmanager
def inherited() -> Iterator[None]:
    """Use that environment for processes that a library starts within the context."""
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
    """Call `leave_current_folder` if one of shoal's packages is run rather than imported.

    Call this in a package's first lines, before its other imports.
    """
    # While `python -m` looks for the module, argv[0] is "-m".
    if sys.argv[:1] == ["-m"] or (sys.argv and Path(sys.argv[0]).name == PROGRAM):
        leave_current_folder()


def leave_current_folder() -> None:
    """Stop importing from the current folder, in this process and its children."""
    os.environ.update(environment())
    sys.path[:] = [entry for entry in sys.path if not _is_foreign(entry)]


def _is_foreign(entry: str) -> bool:
    """Return whether an entry of an import path is the current folder, and not shoal's own."""
    try:
        here = Path.cwd()
        return Path(entry).resolve() == here and here not in _OURS
    except OSError:  # the folder is gone
        return not entry

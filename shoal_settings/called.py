"""The command that started this program, so that printed commands can be copied.

`make` leaves `shoal` in `.venv/bin`, a wheel on the PATH, and `python -m shoal` needs neither.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from shoal_base.children import python

_NAME = "shoal"
_MADE = f".venv/bin/{_NAME}"


def called() -> str:
    """Return the words that start `shoal` again from this folder."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":  # as a node starts its page
        interpreter = Path(python()[0])
        if (installed := interpreter.with_name(_NAME)).exists():
            return _shortest(installed)
        return f"{_shortest(interpreter)} -m {_NAME}"
    if started.name != _NAME:  # imported by another program
        return _NAME
    return _shortest(started)


def join_command(address: str, swarm_key: str) -> str:
    """Return the command with which another person joins: `make` if this program was started by it.

    `swarm_key` is the setting: `none`, or a file.
    """
    key = [] if swarm_key == "none" else ["--swarm-key", swarm_key]
    if os.environ.get("MAKELEVEL") and sys.argv[0] == _MADE:
        return f"make node BOOTSTRAP={address}" + (f' ARGS="{shlex.join(key)}"' if key else "")
    return f"{called()} node {shlex.join(['--bootstrap', address, *key])}"


def _shortest(program: Path) -> str:
    """Return `program` by its name if it is on the PATH, otherwise by its path from here."""
    found = shutil.which(program.name)
    if found is not None and Path(found).absolute() == program.absolute():
        return program.name
    try:
        return shlex.quote(str(program.absolute().relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(program))

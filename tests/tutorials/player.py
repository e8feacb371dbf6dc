"""Plays a tutorial in a fresh clone, with every command typed as it stands in the page."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.rooms import python_path
from tests.support.tree import ROOT, copy_tree
from tests.tutorials.blocks import Own, Step, find, steps
from tests.tutorials.terminal import Terminal

TUTORIALS = ROOT / "docs" / "tutorials"
_PATIENCE_S = 240.0
_DONE = "@@done"


def clone(folder: Path) -> Path:
    """Clone this tree, uncommitted changes included, with the packages that are there already."""
    found = folder / "shoal"
    copy_tree(found)
    environment = Path(sys.prefix)
    (found / ".venv").symlink_to(environment)
    stamp = environment / ".installed"
    if stamp.exists():
        os.utime(found / "pyproject.toml", (0, stamp.stat().st_mtime - 1))
    return found


def play(
    page: Path,
    folder: Path,
    *,
    hosts: Mapping[str, Sequence[str]] | None = None,
    patience_s: float = _PATIENCE_S,
) -> int:
    """Play a page; return the number of commands.

    A terminal `NAME` or `NAME-2` stands on the host NAME, which `hosts` says how to reach.

    Raises AssertionError with the page's line where something else is seen.
    """
    own, terminals = Own(), dict[str, Terminal]()
    todo = list(steps(page.read_text()))
    try:
        for step in todo:
            if step.terminal not in terminals:
                host = step.terminal.split("-")[0]
                terminals[step.terminal] = Terminal(
                    _home(folder / host) / "shoal",
                    _environment(folder / host),
                    through=(hosts or {}).get(host, ()),
                )
            _do(step, terminals[step.terminal], own, page, patience_s)
    finally:
        for terminal in terminals.values():
            terminal.close()
    return len(todo)


def _home(folder: Path) -> Path:
    """Return a host's home with a clone in it; all its terminals share them."""
    if not folder.exists():
        folder.mkdir()
        clone(folder)
    return folder


def _do(step: Step, terminal: Terminal, own: Own, page: Path, patience_s: float) -> None:
    if step.answers:
        terminal.answer(step.command)
    elif step.command:
        terminal.type(own.typed(step.command), patience_s)
    else:
        terminal.interrupt()
    missing = terminal.until(lambda lines: find(step, lines, own), patience_s)
    shown = "\n".join(terminal.lines())
    assert missing is None, f"{page.name}:{step.line}: `{step.command}`: no {missing!r} in\n{shown}"


def _environment(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "PYTHON"))}
    clone_of = home / "shoal"
    return kept | {"HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path(clone_of)}

"""`shoal doctor`: what is wrong with a node, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.debug.command import main_of_view

DETAILS = """\
Prints one line a finding, and below it the remedy.

  shoal doctor           the node that runs here
  shoal doctor --json    for programs and alerts

Exit codes: 0 nothing is bad, 1 something is, or it failed, 2 usage, 3 no node there."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal doctor`; return the exit code."""
    return main_of_view("doctor", argv, details=DETAILS)

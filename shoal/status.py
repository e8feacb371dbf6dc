"""`shoal status`: the node at a glance."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.debug.command import main_of_view

DETAILS = """\
With `--last`, the numbers that it left when it stopped.

  shoal status                                    the node that runs here
  shoal status --last --data-dir .shoal/node      after its end
  shoal status --json                             for programs

Exit codes: 0 ok, 1 failed, 2 usage, 3 no node there."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal status`; return the exit code."""
    return main_of_view("status", argv, details=DETAILS)

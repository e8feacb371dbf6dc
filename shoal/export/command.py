"""`shoal export`: what a node has, for other programs. Its parts do the work."""

from __future__ import annotations

from collections.abc import Sequence

from shoal_settings.parser import Parser

DESCRIPTION = """\
Write what a node has for other programs: its model, or the rollouts it has seen.

  shoal export model    the newest checkpoint, as a Hugging Face model folder
  shoal export data     questions, completions and rewards, as a data set

Each has `--help`. Exit codes: 0 ok, 1 failed, 2 usage, 3 no node was there."""


def main(argv: Sequence[str]) -> int:
    """Refuse `shoal export` without a part: it ends with exit code 2, or 0 after `--help`."""
    parser = Parser(
        prog="shoal export", description=DESCRIPTION, usage="shoal export [model | data] [flags]"
    )
    parser.parse_args(argv)
    parser.error("name one of model, data")

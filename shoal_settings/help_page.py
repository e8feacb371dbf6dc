"""A command's help: what it does, an example, and its flags in groups, at 80 columns.

A command with many flags shows those that people use first; `--help-all` shows all of them.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from shoal_base.lines import say_lines

WIDTH: Final = 80  # columns of the narrowest usual terminal
_FLAGS_AT: Final = 26
"""Column from which a flag's description stands."""
_OWN_LINE: Final = "Exit codes:"
_NOT_SAID: Final = (None, False, True, "", argparse.SUPPRESS)


class HelpLines(argparse.HelpFormatter):
    """Wraps paragraphs, leaves indented lines (examples) alone, and adds the defaults."""

    def __init__(self, prog: str) -> None:
        width = min(WIDTH, max(40, shutil.get_terminal_size((WIDTH, 24)).columns))
        super().__init__(prog, max_help_position=_FLAGS_AT, width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = [list(_paragraphs(block)) for block in text.split("\n\n")]
        return "\n\n".join(
            "\n".join(line for part in block for line in self._lines(part, width))
            for block in blocks
        )

    def _lines(self, part: str, width: int) -> list[str]:
        return [part] if part.startswith(" ") else textwrap.wrap(part, width)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        is_value = bool(action.option_strings) and action.nargs != 0
        if not text or not is_value or "default" in text or "required" in text:
            return text
        default = action.default
        if isinstance(default, list | tuple) or default in _NOT_SAID:
            return text
        if f"({default:g}" in text if isinstance(default, float) else f"({default}" in text:
            return text  # a name for it stands there
        return f"{text} (default: %(default)s)"


def _paragraphs(block: str) -> Iterator[str]:
    """Yield a block's indented lines one by one, and each run of other lines joined."""
    run: list[str] = []
    for line in block.splitlines():
        if line.startswith((" ", _OWN_LINE)) and run:
            yield " ".join(run)
            run = []
        if line.startswith(" "):
            yield line
        else:
            run.append(line)
    if run:
        yield " ".join(run)


class ShowHelp(argparse.Action):
    """`--help`, and `--help-all` for all flags of a command that has many."""

    def __init__(self, option_strings: list[str], dest: str, **given: Any) -> None:
        text, none = given.get("help"), argparse.SUPPRESS
        super().__init__(option_strings, dest=none, default=none, nargs=0, help=text)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Print it and exit."""
        show_all = "--help-all" in self.option_strings
        say_lines(help_page(parser, show_all=show_all).rstrip())
        parser.exit()


def help_page(parser: argparse.ArgumentParser, *, show_all: bool = False) -> str:
    """Return a parser's help; of many flags, only those in its attribute `first`."""
    first: tuple[str, ...] = getattr(parser, "first", ())
    formatter = parser._get_formatter()
    formatter.add_usage(usage_of(parser), [], [])
    formatter.add_text(parser.description)
    num_hidden = 0
    for group in sorted(parser._action_groups, key=lambda one: one is parser._optionals):
        listed = [one for one in group._group_actions if one.help != argparse.SUPPRESS]
        shown = [one for one in listed if show_all or not first or _is_first(one, first)]
        num_hidden += len(listed) - len(shown)
        if shown:
            formatter.start_section(group.title)
            formatter.add_arguments(shown)
            formatter.end_section()
    if num_hidden:
        formatter.add_text(f"and {num_hidden} more: {parser.prog} --help-all")
    return formatter.format_help()


def usage_of(parser: argparse.ArgumentParser) -> str:
    """Return the line of what is given in which order, without every flag's name."""
    if parser.usage:
        return parser.usage
    words = [parser.prog]
    for action in parser._actions:
        if not action.option_strings and action.help != argparse.SUPPRESS:
            name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
            words.append(f"[{name}]" if action.nargs in ("?", "*") else name)
    return " ".join([*words, "[flags]"]).replace("%", "%%")


def _is_first(action: argparse.Action, first: tuple[str, ...]) -> bool:
    return not action.option_strings or action.dest in first or isinstance(action, ShowHelp)

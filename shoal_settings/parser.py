"""A parser of flags whose every mistake is one line: what is wrong, and what was perhaps meant."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

from shoal_base.node_folders import NODE_FOLDER
from shoal_settings.exits import EXIT_USAGE, say_error
from shoal_settings.help_page import HelpLines, ShowHelp, help_page


class Parser(argparse.ArgumentParser):
    """A parser whose help is shoal's own, and whose user errors are one line and exit code 2."""

    def __init__(self, *, first: Sequence[str] = (), **given: Any) -> None:
        """With `first`, destinations of flags, the short help has those alone."""
        super().__init__(add_help=False, allow_abbrev=False, formatter_class=HelpLines, **given)
        self.first = tuple(first)
        self._positionals.title, self._optionals.title = "arguments", "flags"
        short = "show this" + (", --help-all every flag" if first else "") + ", and exit"
        self.add_argument("-h", "--help", action=ShowHelp, help=short)
        self.add_argument("--help-all", action=ShowHelp, help=argparse.SUPPRESS)

    def format_help(self) -> str:
        """Return the short help."""
        return help_page(self)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit."""
        name, required, missing = message.partition("the following arguments are required: ")
        if required and not name:
            message = self._wanted(missing.split(", ")[0])
        say_error(self.prog, f"{message}; see {self.prog} --help")
        raise SystemExit(EXIT_USAGE)

    def _wanted(self, missing: str) -> str:
        """Return the error for a missing argument, given its name in argparse."""
        for action in self._actions:
            names = ("/".join(action.option_strings), action.metavar, action.dest)
            if missing in names and not action.option_strings and action.choices is not None:
                return f"name one of {', '.join(map(str, action.choices))}"
        return f"{missing} is missing"

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments."""
        if _is_inspecting.get():
            raise _ParserFound(self)
        return super().parse_args(args, namespace)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; one that is left over is a mistake, here and in a sub-command."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown)
        return found, []

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        if not flags:
            self.error(f"there is one argument too many: {unknown[0]!r}")
        if owners := _commands_with(flags[0]):
            self.error(f"{flags[0]} is a flag of {owners}, not of {self.prog}")
        self.error(f"no flag {flags[0]}{did_you_mean(flags[0], self._shown_flags())}")

    def _shown_flags(self) -> Iterable[str]:
        for flag, action in self._option_string_actions.items():
            if action.help != argparse.SUPPRESS:
                yield flag

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        there = list(map(str, action.choices))
        name = action.metavar if isinstance(action.metavar, str) else action.dest
        what = action.option_strings[-1] if action.option_strings else str(name).lower()
        none = f"no {what} {value!r}{did_you_mean(str(value), there)}"
        raise argparse.ArgumentError(None, f"{none}; there are {', '.join(there)}")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and arg_strings == ["--"]:
            arg_strings = ["--", "--"]  # argparse takes the first away, also where it is a value
        return super()._get_values(action, arg_strings)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if action.metavar not in _OF_PATHS and not is_text(arg_string):
            raise argparse.ArgumentError(action, f"{arg_string!r} has bytes that are not UTF-8")
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            cause = error.__context__
            if isinstance(cause, argparse.ArgumentTypeError):
                raise
            kind = {int: "a whole number", float: "a number"}.get(action.type)  # type: ignore[call-overload]
            says = f"{arg_string!r} is not {kind}" if kind else str(cause)
            raise argparse.ArgumentError(action, says) from None


def _commands_with(flag: str) -> str:
    """Return which commands take a setting's flag, to be read by people; empty if none does."""
    from shoal_settings.schema import ALIASES, Settings, public_name

    key = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
    for field, info in Settings.model_fields.items():
        is_named = public_name(field) == key or flag in ALIASES.get(field, ())
        if is_named and isinstance(info.json_schema_extra, dict):
            return ", ".join(f"shoal {one}" for one in info.json_schema_extra["commands"])  # type: ignore[union-attr]
    return ""


_OF_PATHS = ("FILE", "DIR")
"""Help's names of values that may have any bytes, as names of files do."""


def is_text(word: str) -> bool:
    """Return whether a word of the command line can be written as UTF-8."""
    return word.isascii() or word.encode(errors="replace").decode() == word


class _ParserFound(BaseException):
    """Ends a command where it would parse its flags."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser


_is_inspecting: ContextVar[bool] = ContextVar("_is_inspecting", default=False)


def parser_of(main: Callable[[Sequence[str]], int]) -> Parser:
    """Return the parser of a command: it is called as far as to where it parses its flags.

    Raises:
        LookupError: it does not parse any.
    """
    token = _is_inspecting.set(True)
    try:
        main([])
    except _ParserFound as found:
        return found.parser
    finally:
        _is_inspecting.reset(token)
    raise LookupError(f"{main.__module__} parses no flags")


def data_dir_flag(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--data-dir` to a command that asks a peer or reads what one left."""
    parser.add_argument("--data-dir", type=path, default=NODE_FOLDER, metavar="DIR", help=text)


_MAX_TYPOS = 2
"""Largest edit distance of a suggestion: a more distant word is a guess, and misleads."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean '…'?)` with the closest word of `known`; empty if none is close.

    A word is close if at most two letters, and fewer than half of them, are wrong.
    """
    limit = min(_MAX_TYPOS, (len(word.lstrip("-")) - 1) // 2)
    distances = [(_edit_distance(word, one), one) for one in known]
    distance, closest = min(distances, key=lambda pair: pair[0], default=(limit + 1, ""))
    return f" (did you mean {closest!r}?)" if distance <= limit else ""


def _edit_distance(first: str, second: str) -> int:
    """Return how many letters to insert, delete, replace or swap with the next one.

    Words whose lengths differ by more than `_MAX_TYPOS` are not compared: they get one more.
    """
    if abs(len(first) - len(second)) > _MAX_TYPOS:
        return _MAX_TYPOS + 1
    above: list[int] = []
    row = list(range(len(second) + 1))
    for i, a in enumerate(first):
        two_above, above, row = above, row, [i + 1]
        for j, b in enumerate(second):
            best = min(above[j + 1] + 1, row[j] + 1, above[j] + (a != b))
            if i and j and a == second[j - 1] and b == first[i - 1]:
                best = min(best, two_above[j - 1] + 1)
            row.append(best)
    return row[-1]


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return the reader of a flag's whole number from `low` to `high`, both included."""
    allowed = f"at least {low}" if high is None else f"{low} to {high}"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"{text!r} is out of range: it must be {allowed}")
        return value

    return read


def path(text: str) -> Path:
    """Read a flag's path. An empty one would be the folder that one stands in."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the path is empty; . is the folder you are in")
    return Path(text)

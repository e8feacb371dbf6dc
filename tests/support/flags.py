"""Every flag of every `shoal` command, hidden ones included, as the parsers know them.

Uses nothing of shoal but its entry point, so that it describes an earlier commit too:

    python tests/support/flags.py ENTRY_MODULE
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

Json = dict[str, Any]
Main = Callable[[Sequence[str]], int]

COMMANDS = (
    *("node", "bootstrap", "swarm", "trainer", "experiment", "tasks", "publish", "answer"),
    *("export", "judge", "judge report", "debug"),
)
WITH_SETTINGS = ("node", "bootstrap", "swarm", "trainer", "judge")
"""Commands that have `--print-config`."""


class _Caught(BaseException):
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def flags(main: Main) -> dict[str, Json]:
    """Return, by command (and view of `debug`), its arguments by name."""
    found: dict[str, Json] = {}
    for command in COMMANDS:
        for name, parser in _with_views(command, _parser_of(main, command)):
            found[name] = _arguments(parser)
    return found


def settings(main: Main) -> dict[str, Json]:
    """Return what `--print-config --json` prints, by command."""
    printed = {}
    for command in WITH_SETTINGS:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            assert main([command, "--print-config", "--json"]) == 0
        printed[command] = json.loads(output.getvalue())
    return printed


def _parser_of(main: Main, command: str) -> argparse.ArgumentParser:
    def catch(parser: argparse.ArgumentParser, *_arguments: Any) -> None:
        raise _Caught(parser)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", catch):
        try:
            main(command.split())
        except _Caught as caught:
            return caught.parser
    raise AssertionError(f"{command} does not parse its arguments")


def _with_views(
    command: str, parser: argparse.ArgumentParser
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield command, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, view in action.choices.items():
                yield f"{command} {name}", view


def _arguments(parser: argparse.ArgumentParser) -> Json:
    found: Json = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        row: Json = {
            "takes": "1" if action.nargs is None else str(action.nargs),
            "const": _plain(action.const),
            "default": _plain(action.default),
            "choices": None if action.choices is None else sorted(action.choices),
            "required": action.required,
        }
        row = {key: value for key, value in row.items() if value is not None and value is not False}
        for name in action.option_strings or (action.dest,):
            found[name] = row
    return found


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | list) else str(value)


if __name__ == "__main__":
    entry: Main = importlib.import_module(sys.argv[1]).main
    print(json.dumps({"flags": flags(entry), "settings": settings(entry)}, indent=1))

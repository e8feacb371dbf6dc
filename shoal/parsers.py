"""The parsers of all commands, for completion and for tests of the help."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Sequence

from shoal.__main__ import COMMANDS, is_installed
from shoal_settings.parser import Parser, parser_of


def parsers() -> Iterator[tuple[tuple[str, ...], Parser]]:
    """Yield the words of every installed command and sub-command, with its parser."""
    for name, command in COMMANDS.items():
        every: dict[tuple[str, ...], str] = {(name,): command.module}
        every |= {(name, part): module for part, module in command.parts.items()}
        for words, module in every.items():
            if is_installed(module):
                yield words, _parser(module)


def views_of(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    """Return a parser's sub-commands by their word."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def all_parsers() -> Iterator[tuple[tuple[str, ...], Parser]]:
    """Yield as `parsers`, and the views of commands that have views."""
    for words, parser in parsers():
        yield words, parser
        for view, its in views_of(parser).items():
            yield (*words, view), its


def parser_for(words: Sequence[str]) -> Parser | None:
    """Return the parser of the command, sub-command or view at the start of `words`."""
    found = dict(all_parsers())
    return found.get(tuple(words[:2])) or found.get(tuple(words[:1]))


def _parser(module: str) -> Parser:
    return parser_of(importlib.import_module(module).main)

"""`shoal completion`: shell completion, generated from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final

import shtab

from shoal.__main__ import COMMANDS
from shoal.parsers import parsers
from shoal_base.lines import say_json, say_lines
from shoal_settings.early import NAMES
from shoal_settings.exits import EXIT_OK
from shoal_settings.groups import choices_of
from shoal_settings.parser import Parser
from shoal_settings.schema import Settings
from shoal_tasks.families import PRESETS
from shoal_tasks.generators import ALLOWED_GENERATORS

DESCRIPTION = """\
Print shell completion for shoal: commands, views, flags, choices, presets, task families and files.
Save it where your shell looks for it, and open a new shell. Do so again after an update.

  shoal completion bash > ~/.local/share/bash-completion/completions/shoal
  shoal completion zsh > ~/.zfunc/_shoal
  shoal completion fish > ~/.config/fish/completions/shoal.fish

For zsh, put `fpath+=~/.zfunc` before `compinit` in ~/.zshrc.
Exit codes: 0 ok, 2 usage."""

SHELLS: Final = ("bash", "zsh", "fish")
_BY_METAVAR: Final = {"DIR": shtab.DIRECTORY, "FILE": shtab.FILE}
_PRESETS: Final = " ".join(choices_of("tasks"))
_TASKS: Final = {
    "bash": "_shoal_compgen_tasks",
    "zsh": "_shoal_tasks",
    "fish": f"(string split ' ' '{_PRESETS}'; __fish_complete_suffix .toml)",
    "preamble": {
        "bash": f"""_shoal_compgen_tasks() {{
  compgen -W "{_PRESETS}" -- $1
  compgen -f -X '!*.toml' -- $1
  compgen -d -- $1
}}
""",
        "zsh": f"""_shoal_tasks() {{
  _alternative 'presets:preset:({_PRESETS})' 'files:task file:_files -g "*.toml"'
}}
""",
    },
}
"""Completion of `--tasks`, by shell: presets, and files that end in .toml."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal completion`; return the exit code."""
    parser = Parser(prog="shoal completion", description=DESCRIPTION)
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    text = script(arguments.shell)
    if arguments.json:
        say_json({"schema_version": 1, "shell": arguments.shell, "script": text})
    else:
        say_lines(text)
    return EXIT_OK


def script(shell: str) -> str:
    """Return the shell's script. Blocks for seconds: it imports every command."""
    return shtab.complete(_whole(), shell)


def _whole() -> argparse.ArgumentParser:
    """Return one parser that has all commands."""
    found = dict(parsers())
    whole = argparse.ArgumentParser(prog="shoal")
    whole.add_argument("--version", action="store_true", help="the installed version")
    commands = whole.add_subparsers()
    for words, parser in found.items():
        _tell_values(words, parser)
        parser.description = COMMANDS[words[0]].does if len(words) == 1 else _first(parser)
        if len(words) == 1:
            below = {more[1]: one for more, one in found.items() if more[:-1] == words}
            _put(commands, words[0], parser)
            if below:
                _add_parts(parser, below)
    _add_flags_of(found[("node",)], found[("join",)])
    help_parser = commands.add_parser("help", help="explain a command")
    help_parser.add_argument("command", choices=[words[0] for words in found if len(words) == 1])
    return whole


def _add_flags_of(other: Parser, parser: Parser) -> None:
    """Add the flags of another parser to one that passes them on unparsed."""
    for action in other._actions:
        if not set(action.option_strings) & set(parser._option_string_actions):
            parser._add_action(action)


def _add_parts(parser: Parser, parts: Mapping[str, Parser]) -> None:
    below = parser.add_subparsers()
    for name, part in parts.items():
        _put(below, name, part)


def _put(commands: argparse._SubParsersAction[Any], name: str, parser: Parser) -> None:
    """Add an existing parser as a sub-command."""
    commands.add_parser(name, help=parser.description)
    commands._name_parser_map[name] = parser


def _first(parser: argparse.ArgumentParser) -> str:
    """Return the first sentence of a parser's description, for a shell's list."""
    return " ".join((parser.description or "").partition(".")[0].split())


def _tell_values(words: tuple[str, ...], parser: Parser) -> None:
    """Set how the value of each flag and argument is completed, where that is known."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for view in action.choices.values():
                _tell_values(words, view)
                view.description = _first(view)
            continue
        if action.nargs == 0:
            continue
        if action.dest == "tasks":
            action.complete = _TASKS  # type: ignore[attr-defined]
        elif isinstance(action.metavar, str) and action.metavar in _BY_METAVAR:
            action.complete = _BY_METAVAR[action.metavar]  # type: ignore[attr-defined]
        elif known := _values(words, action.dest):
            action.choices = known


def _values(words: tuple[str, ...], dest: str) -> Sequence[str]:
    if dest == "family":
        families = [spec.name for specs in PRESETS.values() for spec in specs]
        return [*families, *sorted(ALLOWED_GENERATORS)] if words == ("tasks",) else families
    if dest == "model":
        return NAMES
    return choices_of(dest) if dest in Settings.model_fields else ()

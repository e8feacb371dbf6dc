"""`shoal debug VIEW`, `shoal status` and `shoal doctor`: a node's answers through its socket."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from shoal.debug.views import VIEWS, View
from shoal.nearby import folder_with, running_node
from shoal.view.node import RunningNode, words_of
from shoal_base.lines import say_json
from shoal_base.node_folders import NODE_FOLDER
from shoal_base.terminal import Terminal
from shoal_ipc.answers.form import read
from shoal_ipc.client import NodeRefused, NodeUnavailable
from shoal_p2p.state_file import STATE_FILE
from shoal_settings.exits import EXIT_FAILED, EXIT_OK, UsageExit, fail
from shoal_settings.help_page import usage_of
from shoal_settings.loader import SettingsError, load
from shoal_settings.parser import Parser
from shoal_settings.schema import Settings

DESCRIPTION = """\
Inspect a running node, bootstrap peer or judge through the socket in its data directory. Works
while the trainer is down. `shoal status` and `shoal doctor` show the node at a glance and what is
wrong with it.

  shoal debug peers              who is connected
  shoal debug rollouts --json    the latest answers, for programs

Exit codes: 0 ok, 1 failed, 2 usage, 3 no node there."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal debug`; return the exit code."""
    arguments = _parser().parse_args(_view_first(argv))
    return _run("debug", arguments)


def main_of_view(name: str, argv: Sequence[str], *, details: str) -> int:
    """Run the view `name` that is a command of its own; return the exit code.

    `details` ends the help: what the command adds to its view.
    """
    parser = Parser(prog=f"shoal {name}")
    _add_flags(parser, VIEWS[name])
    parser.description = f"{_sentence(VIEWS[name])} {details}"
    arguments = parser.parse_args(argv)
    arguments.view = name
    return _run(name, arguments)


def _run(command: str, arguments: argparse.Namespace) -> int:
    """Request the view of the flags, and print it."""
    try:
        loaded = load("debug", arguments, os.environ)
        settings = loaded.settings
        named = settings.data_dir if loaded.origins["data_dir"] != "default" else NODE_FOLDER
        settings = settings.model_copy(update={"data_dir": _folder(arguments, named)})
        return _show(command, arguments, settings)
    except SettingsError as error:
        return fail(command, str(error)).code
    except UsageExit as end:
        return end.code
    except (NodeRefused, NodeUnavailable) as error:
        return fail(command, str(error), EXIT_FAILED).code
    except (KeyboardInterrupt, BrokenPipeError):
        return EXIT_OK


def _folder(arguments: argparse.Namespace, named: Path) -> Path:
    """Return the node's folder; `NODE_FOLDER` stands for a command line without --data-dir."""
    if getattr(arguments, "last", False):
        return folder_with(STATE_FILE, named)
    return running_node(named)


def _show(command: str, arguments: argparse.Namespace, settings: Settings) -> int:
    console, view = Terminal(), VIEWS[arguments.view]

    def tell(text: str) -> None:
        if not settings.json_output:
            console.print(text, soft_wrap=True)

    for answer in view.answers(RunningNode(settings.data_dir, command), arguments, tell):
        found = read(view.kind, answer)
        if settings.json_output:
            say_json(answer)
        else:
            view.show(console, found)
        if view.failed(found):
            return EXIT_FAILED
    return EXIT_OK


def _view_first(argv: Sequence[str]) -> list[str]:
    """Move flags in front of the view behind it, where its own parser reads them."""
    words, before = list(argv), []
    while words and words[0].startswith("-") and words[0] not in ("-h", "--help"):
        num_words = 2 if words[0] in ("--data-dir", "--config") else 1
        before += words[:num_words]
        words = words[num_words:]
    return [*words[:1], *before, *words[1:]]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="shoal debug",
        description=DESCRIPTION,
    )
    views = parser.add_subparsers(dest="view", required=True, metavar="VIEW")
    for name, row in VIEWS.items():
        if words_of(name)[0] == "debug":  # `status` and `doctor` are commands of their own
            view = views.add_parser(name, help=row.says)
            _add_flags(view, row)
            example = usage_of(view).removesuffix(" [flags]")
            view.description = f"{_sentence(row)}\n\n  {example}"
    return parser


def _add_flags(parser: argparse.ArgumentParser, row: View) -> None:
    """Add the flags of every view, and those of this one."""
    parser.add_argument(
        "--data-dir",
        dest="data_dir",
        metavar="DIR",
        help="the node's folder (.shoal/node, or the one started last)",
    )
    parser.add_argument(
        "--json",
        dest="json_output",
        action="store_true",
        default=None,
        help="one JSON object, with schema_version",
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings")
    row.flags(parser)


def _sentence(row: View) -> str:
    return f"{row.says[:1].upper()}{row.says[1:]}."

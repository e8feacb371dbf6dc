"""`shoal debug`: look inside a running node through its socket."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from shoal.debug.views import LEFT, VIEWS, View
from shoal.nearby import folder_with, running_node
from shoal.view.node import RunningNode
from shoal_base.lines import say_json
from shoal_base.terminal import Terminal
from shoal_ipc.answers.form import read
from shoal_ipc.client import NodeRefused, NodeUnavailable
from shoal_settings.exits import EXIT_FAILED, EXIT_OK, UsageExit, fail
from shoal_settings.help_page import usage_of
from shoal_settings.loader import SettingsError, load
from shoal_settings.parser import Parser
from shoal_settings.schema import Settings

DESCRIPTION = """\
Look inside a running node or bootstrap peer, through the socket in its data directory.
Works while the trainer is down.

  shoal debug status           the node at a glance
  shoal debug doctor --json    what is wrong, for programs

Exit codes: 0 ok, 1 failed, 2 usage, 3 no node there."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal debug`; return the exit code."""
    words = _view_first(argv)
    arguments = _parser().parse_args(words)
    try:
        loaded = load("debug", arguments, os.environ)
        settings = loaded.settings
        if loaded.origins["data_dir"] == "default":
            settings = settings.model_copy(update={"data_dir": _folder(arguments)})
        return _show(VIEWS[arguments.view], arguments, settings)
    except SettingsError as error:
        return fail("debug", str(error)).code
    except UsageExit as end:
        return end.code
    except (NodeRefused, NodeUnavailable) as error:
        return fail("debug", str(error), EXIT_FAILED).code
    except (KeyboardInterrupt, BrokenPipeError):
        return EXIT_OK


def _folder(arguments: argparse.Namespace) -> Path:
    """Return the folder that is meant where none is named."""
    if getattr(arguments, "last", False):
        return folder_with(LEFT[arguments.view])
    return running_node()


def _show(view: View, arguments: argparse.Namespace, settings: Settings) -> int:
    console = Terminal()

    def tell(text: str) -> None:
        if not settings.json_output:
            console.print(text, soft_wrap=True)

    for answer in view.answers(RunningNode(settings.data_dir), arguments, tell):
        found = read(view.kind, answer)
        if settings.json_output:
            say_json(answer)
        else:
            view.show(console, found)
        if view.failed(found):
            return EXIT_FAILED
    return EXIT_OK


def _view_first(argv: Sequence[str]) -> list[str]:
    """Put flags that stand before the view behind it, where its parser knows them."""
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
        view = views.add_parser(name, help=row.says)
        view.add_argument(
            "--data-dir",
            dest="data_dir",
            metavar="DIR",
            help="the node's folder (.shoal/node, or the one started last)",
        )
        view.add_argument(
            "--json",
            dest="json_output",
            action="store_true",
            default=None,
            help="one JSON object, with schema_version",
        )
        view.add_argument("--config", metavar="FILE", help="TOML file of settings")
        row.flags(view)
        example = usage_of(view).removesuffix(" [flags]")
        view.description = f"{row.says[:1].upper()}{row.says[1:]}.\n\n  {example}"
    return parser

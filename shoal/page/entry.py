"""The door to `shoal page`: its flags. What serves it is loaded when they are right."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from shoal_settings.parser import Parser, path
from shoal_settings.web_address import (
    AUTO,
    WebAddress,
    WebName,
    parse_web_address,
    parse_web_name,
)

DESCRIPTION = """\
Serve a web page of the node in a folder: whether it is all right, whether it learns, from whom, at
what price, what was said and refused. Nodes, bootstraps, judges and swarms start one by themselves
(--no-http: none). It only reads, asks over the sockets in the folders, and outlives the node.

  shoal page                           the node that runs here
  shoal page --data-dir .shoal/swarm   all of a local swarm, side by side
  shoal page --data-dir A --data-dir B   these two
  shoal page --http 0.0.0.0:7462       for other machines, too

The address that it prints has a token, without which the page does not open."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal page`; return the exit code."""
    arguments = _parser().parse_args(argv)
    from shoal.page.command import run

    return run(arguments)


def _address(text: str) -> WebAddress | None:
    try:
        return parse_web_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _name(text: str) -> WebName | None:
    try:
        return parse_web_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shoal page", description=DESCRIPTION)
    parser.add_argument(
        "--data-dir",
        dest="data_dir",
        metavar="DIR",
        type=path,
        action="append",
        help="a peer's folder, or a swarm's; repeatable (.shoal/node, or the only other node)",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        type=_address,
        default=AUTO,
        help="where to serve (default: auto, which is 127.0.0.1:7462 or a free port)",
    )
    parser.add_argument(
        "--http-name",
        metavar="NAME",
        type=_name,
        default=None,
        help="name by which browsers reach it, or https://NAME of a proxy before it",
    )
    parser.add_argument(
        "--json",
        dest="json_output",
        action="store_true",
        help="one JSON object a line, with schema_version",
    )
    # Given by the peer that starts it: end when standard input does, and some time has passed.
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    return parser

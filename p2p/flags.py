"""The flags of a serving command, with every mistake in them as one line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

from p2p.net.announced import parse_announced
from p2p.peers.discovery import parse_bootstrap
from shoal_base.lines import say_json, say_lines
from shoal_settings.exits import EXIT_OK, UsageExit, fail
from shoal_settings.groups import ALWAYS_FIRST, FIRST
from shoal_settings.loader import Loaded, SettingsError, add_flags, describe, describe_text, load
from shoal_settings.parser import Parser
from shoal_settings.schema import Command, Settings


def parse(
    name: str,
    command: Command,
    description: str,
    argv: Sequence[str] | None,
    *,
    defaults: Mapping[str, Any],
) -> tuple[Loaded, bool]:
    """Parse the flags of `shoal NAME`; the second value is the hidden `--supervised`.

    It reads the settings of `command`; `defaults` stand in for those of the schema.

    Raises:
        UsageExit: code 2 after one line on standard error, or 0 after `--print-config`.
    """
    parser = Parser(
        prog=f"shoal {name}",
        description=description,
        first=(*FIRST[command], *ALWAYS_FIRST),
    )
    add_flags(parser, command, defaults, name=name)
    # Given by a parent shoal process: end when standard input does.
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    try:
        loaded = load(command, arguments, os.environ, overrides=defaults)
        _check_addresses(loaded.settings)
    except SettingsError as error:
        raise fail(name, str(error)) from None
    if arguments.print_config:
        if loaded.settings.json_output:
            say_json({"schema_version": 1, **describe(loaded, command)})
        else:
            say_lines(describe_text(loaded, command))
        raise UsageExit(EXIT_OK)
    return loaded, bool(arguments.supervised)


def _check_addresses(settings: Settings) -> None:
    """Raise SettingsError where an address cannot be dialled or announced as it stands."""
    judge = () if settings.judge == "none" else (settings.judge,)
    try:
        parse_bootstrap((*settings.bootstrap, *judge))
        for address in settings.announce:
            parse_announced(address)
    except ValueError as error:
        raise SettingsError(str(error)) from None

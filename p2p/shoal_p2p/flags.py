"""The flags of a serving command, read before libp2p is imported: that takes over a second.

Every mistake in them is one line.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal_base.lines import say_json, say_lines
from shoal_settings.exits import EXIT_OK, UsageExit, fail
from shoal_settings.groups import ALWAYS_FIRST, FIRST
from shoal_settings.loader import Loaded, SettingsError, add_flags, describe, describe_text, load
from shoal_settings.parser import Parser
from shoal_settings.schema import Command, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFlags:
    """A serving command's name, texts and defaults."""

    name: str
    """Its name after `shoal`."""
    description: str
    settings_of: Command
    """The command whose settings it reads."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings whose default is not the schema's."""

    def parse(self, argv: Sequence[str] | None) -> ParsedFlags:
        """Read flags, file and environment.

        Raises:
            UsageExit: code 2 after one line on standard error, or 0 after `--print-config`.
        """
        parser = Parser(
            prog=f"shoal {self.name}",
            description=self.description,
            first=(*FIRST[self.settings_of], *ALWAYS_FIRST),
        )
        add_flags(parser, self.settings_of, self.defaults, name=self.name)
        parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
        arguments = parser.parse_args(argv)
        try:
            loaded = load(self.settings_of, arguments, os.environ, overrides=self.defaults)
            _check_addresses(loaded.settings)
        except SettingsError as error:
            raise fail(self.name, str(error)) from None
        if arguments.print_config:
            if loaded.settings.json_output:
                say_json({"schema_version": 1, **describe(loaded, self.settings_of)})
            else:
                say_lines(describe_text(loaded, self.settings_of))
            raise UsageExit(EXIT_OK)
        return ParsedFlags(flags=self, loaded=loaded, supervised=bool(arguments.supervised))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFlags:
    """The flags that a serving command was started with."""

    flags: ServingFlags
    loaded: Loaded
    supervised: bool
    """A parent shoal process started it: it ends when its standard input does."""


def _check_addresses(settings: Settings) -> None:
    """Raise SettingsError where an address cannot be dialled or announced as it stands."""
    judge = () if settings.judge == "none" else (settings.judge,)
    if not (settings.bootstrap or judge or settings.announce):
        return
    # Late: with them comes libp2p.
    from shoal_p2p.net.announced import parse_announced
    from shoal_p2p.peers.targets import parse_bootstrap

    try:
        parse_bootstrap((*settings.bootstrap, *judge))
        for address in settings.announce:
            parse_announced(address)
    except ValueError as error:
        raise SettingsError(str(error)) from None

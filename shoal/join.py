"""`shoal join`: a node in the swarm that an invitation names."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from p2p.__main__ import make_node, run
from p2p.net.swarm_key import SwarmKeyError, keep_swarm_key, load_swarm_key
from p2p.node import Node
from shoal_settings.exits import UsageExit, fail
from shoal_settings.parser import Parser
from shoal_settings.schema import Settings
from shoal_wire.invite import LOOKS_LIKE, Invite, InviteError, decode_invite

DESCRIPTION = """\
Run `shoal node` in the swarm that an invitation names: LINE is what `shoal invite` printed. It says
where the swarm is met and which one it is: another swarm at its addresses is refused. The key of a
private swarm, if the line has it, is written into the data directory for its owner alone.

  shoal join shoal1…                the embedded small model, no download
  shoal join shoal1… --rounds 100   with any flags of `shoal node`

The same line joins again."""

SWARM_KEY_FILE = "swarm.key"


def main(argv: Sequence[str]) -> int:
    """Run `shoal join`; return the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        _parser().parse_args(argv[:1])
    line, flags = _taken_out(argv)
    try:
        if line.startswith("-"):
            raise fail("join", "the invitation comes first: shoal join LINE [flags of shoal node]")
        invite = decode_invite(line.strip())
    except InviteError as error:
        return fail("join", str(error)).code
    except UsageExit as end:
        return end.code
    return run([*_flags(invite), *flags], make=partial(_make, invite))


def _taken_out(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Return the invitation, which is the first argument but for one that looks like none."""
    at = next((n for n, word in enumerate(argv) if word.startswith(LOOKS_LIKE)), 0)
    return argv[at], [*argv[:at], *argv[at + 1 :]]


def _flags(invite: Invite) -> list[str]:
    """Return what the invitation says as flags of `shoal node`; none of it can be another flag."""
    addresses = [f"--bootstrap={address}" for address in invite.addresses]
    return [*addresses, f"--swarm-id={invite.swarm.hex()}"]


def _make(invite: Invite, *, settings: Settings, **given: Any) -> Node:
    """Return a node with the invitation's key, which stands in its folder from then on.

    Raises:
        SwarmKeyError: it cannot be written there, or the settings name another.
        UsageExit: the swarm has a key, and neither the line nor the settings do.
    """
    key, named = invite.swarm_key, settings.swarm_key
    if invite.private and key is None and named == "none":
        raise fail("join", "the swarm is private: ask for its key, and give it by --swarm-key FILE")
    if key is not None and named != "none" and load_swarm_key(Path(named)) != key:
        raise SwarmKeyError(f"{named} (--swarm-key) is another key than the invitation's")
    if key is not None and named == "none":
        path = settings.data_dir / SWARM_KEY_FILE
        keep_swarm_key(path, key)
        settings = settings.model_copy(update={"swarm_key": str(path)})
    return make_node(settings=settings, **given)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="shoal join",
        description=DESCRIPTION,
        usage="shoal join LINE [flags of shoal node]",
    )
    parser.add_argument("line", metavar="LINE", help="an invitation: one word, shoal1…")
    return parser

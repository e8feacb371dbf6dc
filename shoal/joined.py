"""The node of `shoal join`: `shoal node` with the values of an invitation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from shoal_p2p.flags import ParsedFlags
from shoal_p2p.live_command import make_node, run
from shoal_p2p.net.swarm_key import SwarmKeyError, keep_swarm_key, load_swarm_key
from shoal_p2p.node import Node
from shoal_p2p.parts import Limits
from shoal_settings.exits import fail
from shoal_settings.schema import Settings
from shoal_wire.invite import Invite

SWARM_KEY_FILE = "swarm.key"


def run_joined(invite: Invite, given: ParsedFlags) -> int:
    """Run `shoal node` in the invitation's swarm; return the exit code."""
    return run(given, make=partial(_make, invite))


def _make(invite: Invite, *, settings: Settings, **given: Any) -> Node:
    """Return a node with the invitation's key, which is stored in its folder from then on.

    Raises:
        SwarmKeyError: it cannot be written there, or the settings name another.
        UsageExit: the swarm is private, and neither the invitation nor the settings have its key.
    """
    key, named = invite.swarm_key, settings.swarm_key
    if invite.private and key is None and named == "none":
        raise fail("join", "the swarm is private: ask for its key, then give --swarm-key FILE")
    if key is not None and named != "none" and load_swarm_key(Path(named)) != key:
        raise SwarmKeyError(f"{named} (--swarm-key) differs from the invitation's key")
    if key is not None and named == "none":
        path = settings.data_dir / SWARM_KEY_FILE
        keep_swarm_key(path, key)
        settings = settings.model_copy(update={"swarm_key": str(path)})
    # Addresses given as flags are not part of the invitation.
    invited = frozenset(invite.addresses)
    tuning = Limits.of(settings)
    discovery = replace(tuning.discovery, invited=invited)
    return make_node(settings=settings, tuning=replace(tuning, discovery=discovery), **given)

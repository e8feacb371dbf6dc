"""`shoal bootstrap`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from bootstrap.peer import BootstrapPeer
from p2p.data_dir import IDENTITY_FILE
from p2p.net.identity import Identity, load_or_create_identity
from p2p.process import (
    USAGE_ERRORS,
    call_on_parent_end,
    call_on_signal,
    own_data_dir,
    parse,
    root_error,
    start_logging,
)
from shoal_settings.exits import EXIT_FAILED, EXIT_OK, UsageExit, fail
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError

DEFAULTS = {
    "data_dir": Path(".shoal/bootstrap"),
    "listen": ("/ip4/0.0.0.0/tcp/4001",),
    "target_peers": 64,
}

DESCRIPTION = """\
Run a bootstrap peer: a stable address at which newcomers learn what the swarm has agreed on and
whom to connect to. It relays gossip, keeps no rollouts and trains nothing; nodes that have met
stay together without it. Nodes join with `shoal node --bootstrap ADDRESS`, ADDRESS being one of
the lines that it prints."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal bootstrap`; return the exit code."""
    try:
        loaded, supervised = parse("bootstrap", DESCRIPTION, argv, overrides=DEFAULTS)
        start_logging(loaded.settings, "bootstrap")
        with own_data_dir(loaded) as settings:
            identity = load_or_create_identity(settings.data_dir / IDENTITY_FILE)
            return _run(settings, identity, supervised)
    except UsageExit as end:
        return end.code
    except USAGE_ERRORS as error:
        return fail("bootstrap", str(error)).code
    except TaskError as error:
        return fail("bootstrap", str(error), EXIT_FAILED).code


def _run(settings: Settings, identity: Identity, supervised: bool) -> int:
    again = True
    while again:
        try:
            again = trio.run(_run_once, settings, identity, supervised)
        except BaseExceptionGroup as group:
            raise root_error(group) from None
    return EXIT_OK


async def _run_once(settings: Settings, identity: Identity, supervised: bool) -> bool:
    peer = BootstrapPeer(
        identity=identity, settings=settings, on_ready=partial(_announce, settings)
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(call_on_signal, peer.stop)
        if supervised:
            nursery.start_soon(call_on_parent_end, peer.stop)
        again = await peer.run()
        nursery.cancel_scope.cancel()
    return again


def _announce(settings: Settings, peer: BootstrapPeer) -> None:
    core = peer.core
    addresses = core.host.listen_addrs()
    if settings.json_output:
        ready = {
            "event": "ready",
            "peer_id": core.peer_id,
            "addresses": list(addresses),
            "swarm": {"name": core.manifest.swarm_name, "digest": core.manifest.digest.hex()},
            "data_dir": str(settings.data_dir),
        }
        print(json.dumps(ready), flush=True)
        return
    manifest = core.manifest
    print(f"bootstrap peer of swarm {manifest.swarm_name} {manifest.short_name}; reachable at")
    for address in addresses:
        print(f"  {address}")
    print(f"join it: make node BOOTSTRAP={addresses[0]}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

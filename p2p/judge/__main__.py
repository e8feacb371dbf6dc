"""`shoal judge`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from p2p.data_dir import IDENTITY_FILE
from p2p.judge.peer import JudgePeer
from p2p.judge.store import JudgeStoreError
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

DEFAULTS = {"data_dir": Path(".shoal/judge")}

DESCRIPTION = """\
Run a judge: nodes ask it for a question after every few rounds, answer once, and it keeps a signed
record of each score that anybody may read. It takes the settings of `shoal bootstrap`; with
--bootstrap it judges that peer's swarm, else one made from --tasks. Nodes ask with
`shoal node --judge ADDRESS`, ADDRESS being one of the lines that it prints.

  shoal judge --bootstrap /ip4/…/p2p/12D3…    judge the swarm of that peer
  shoal judge report --data-dir .shoal/judge  swarm against silo, as table and figure"""


def main(argv: Sequence[str]) -> int:
    """Run `shoal judge`; return the exit code."""
    try:
        loaded, supervised = parse(
            "bootstrap", DESCRIPTION, argv, overrides=DEFAULTS, shown_as="judge"
        )
        start_logging(loaded.settings, "judge")
        with own_data_dir(loaded) as settings:
            identity = load_or_create_identity(settings.data_dir / IDENTITY_FILE)
            return _run(settings, identity, supervised)
    except UsageExit as end:
        return end.code
    except USAGE_ERRORS as error:
        return fail("judge", str(error)).code
    except (TaskError, JudgeStoreError) as error:
        return fail("judge", str(error), EXIT_FAILED).code


def _run(settings: Settings, identity: Identity, supervised: bool) -> int:
    again = True
    while again:
        try:
            again = trio.run(_run_once, settings, identity, supervised)
        except BaseExceptionGroup as group:
            raise root_error(group) from None
    return EXIT_OK


async def _run_once(settings: Settings, identity: Identity, supervised: bool) -> bool:
    peer = JudgePeer(identity=identity, settings=settings, on_ready=partial(_announce, settings))
    async with trio.open_nursery() as nursery:
        await nursery.start(call_on_signal, peer.stop)
        if supervised:
            nursery.start_soon(call_on_parent_end, peer.stop)
        again = await peer.run()
        nursery.cancel_scope.cancel()
    return again


def _announce(settings: Settings, peer: JudgePeer) -> None:
    core = peer.core
    addresses = core.host.listen_addrs()
    if settings.json_output:
        ready = {
            "event": "ready",
            "peer_id": core.peer_id,
            "addresses": list(addresses),
            "swarm": {"name": core.manifest.swarm_name, "digest": core.manifest.digest.hex()},
            "data_dir": str(settings.data_dir),
            "records": peer.judge.num_records,
        }
        print(json.dumps(ready), flush=True)
        return
    manifest = core.manifest
    print(f"judge of swarm {manifest.swarm_name} {manifest.short_name}; nodes reach it at")
    for address in addresses:
        print(f"  {address}")
    print(f"ask it: shoal node --judge {addresses[0]}")
    print(f"{peer.judge.num_records} records so far in {settings.data_dir}", flush=True)

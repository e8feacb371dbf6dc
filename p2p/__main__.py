"""`shoal node`."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial

import trio

from p2p.data_dir import IDENTITY_FILE, LAST_STATUS_FILE
from p2p.live_node import LiveNode
from p2p.net.identity import Identity, load_or_create_identity
from p2p.node import Node, NodeEnd
from p2p.process import (
    USAGE_ERRORS,
    call_on_parent_end,
    call_on_signal,
    own_data_dir,
    parse,
    root_error,
    start_logging,
)
from p2p.store.store import StoreError
from p2p.usage import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UsageExit, fail
from shoal_base.files import write_atomically
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError

log = logging.getLogger(__name__)

DESCRIPTION = """\
Run a node and its trainer: join a swarm, train on verifiable tasks, share every answer, learn
from the answers of others.

With no --bootstrap it looks for peers it can find by itself (those it met before, those on this
machine and the local network) and otherwise trains alone, and says so. It never exits because
nobody is there.

  shoal node                                  the embedded small model, no download
  shoal node --bootstrap /ip4/…/p2p/12D3…     join the swarm of that peer
  shoal node --model Qwen/Qwen2.5-0.5B-Instruct --max-new-tokens 256 --learning-rate 1e-6"""


def main(argv: Sequence[str]) -> int:
    """Run `shoal node`; return the exit code."""
    try:
        loaded, supervised = parse("node", DESCRIPTION, argv)
        start_logging(loaded.settings, "node")
        with own_data_dir(loaded) as settings:
            return _run(settings, supervised=supervised)
    except UsageExit as end:
        return end.code
    except USAGE_ERRORS as error:
        return fail("node", str(error)).code
    except (StoreError, TaskError) as error:
        return fail("node", str(error), EXIT_FAILED).code


def _run(settings: Settings, *, supervised: bool) -> int:
    identity = load_or_create_identity(settings.data_dir / IDENTITY_FILE)
    while True:
        try:
            end = trio.run(_run_once, settings, identity, supervised)
        except BaseExceptionGroup as group:
            raise root_error(group) from None
        match end:
            case NodeEnd.MANIFEST_CHANGED:
                continue
            case NodeEnd.MISCONFIGURED:
                return EXIT_USAGE
            case _:
                return EXIT_OK


async def _run_once(settings: Settings, identity: Identity, supervised: bool) -> NodeEnd:
    node = Node(identity=identity, settings=settings, on_ready=partial(_announce, settings))
    async with trio.open_nursery() as nursery:
        await nursery.start(call_on_signal, node.stop)
        if supervised:
            nursery.start_soon(call_on_parent_end, node.stop)
        end = await node.run()
        await _keep_last_status(node, settings)
        nursery.cancel_scope.cancel()
    return end


async def _keep_last_status(node: Node, settings: Settings) -> None:
    """Leave the last numbers for `shoal debug status --last`."""
    content = json.dumps(node.last_status, indent=1).encode()
    await trio.to_thread.run_sync(write_atomically, settings.data_dir / LAST_STATUS_FILE, content)


def _announce(settings: Settings, node: LiveNode) -> None:
    member = node.member
    if settings.json_output:
        ready = {
            "event": "ready",
            "peer_id": member.peer_id,
            "addresses": list(member.host.listen_addrs()),
            "swarm": {"name": member.manifest.swarm_name, "digest": member.manifest.digest.hex()},
            "data_dir": str(settings.data_dir),
        }
        print(json.dumps(ready), flush=True)
        return
    manifest = member.manifest
    print(f"node {member.peer_id}  (data in {settings.data_dir})")
    print(f"swarm {manifest.swarm_name} {manifest.short_name}, {len(manifest.families)} families")
    for address in member.host.listen_addrs():
        print(f"  listening on {address}")
    print(f"look inside: shoal debug status --data-dir {settings.data_dir}", flush=True)

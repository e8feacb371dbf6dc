"""A node that starts with a full buffer on disk, compared with one that starts empty.

A watching node stays up. The other is started as a process with the default buffer, full: 4,096
groups of eight completions of 600 characters by 20 publishers. Company is the moment when the
watcher has it in its mesh, in seconds since the process was started. From its first connection
until its socket is open, and two seconds more, the watcher pings it, with 10 ms between two pings:
the longest time without an answer is the longest stall of its event loop.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from benchmarks.groups import draw_tasks, make_group
from benchmarks.harness import Goal, Options, Report, at_most, main, median, note
from benchmarks.stored_groups import SWARM_NAME, fill
from benchmarks.texts import reasoning
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.net.request import RequestError
from shoal_p2p.node import Node
from shoal_settings.schema import Settings
from shoal_wire.types import PeerId, RolloutGroup
from tests.support.peers import address_of, open_peer
from tests.support.processes import LOOPBACK, ProcessManager, ShoalProcess, open_stage

NUM_GROUPS = Settings.model_fields["buffer_bytes"].default // (16 * 1024)
_NUM_TASKS = 512
_CHARS = 600
_PING_PAUSE_S = 0.01
_AFTER_S = 2.0
_PATIENCE_S = 120.0
_MORE_S, _STALL_MS = 1.0, 250.0


def measure(options: Options) -> Report:
    """Start a node with an empty and one with a full disk, in turn."""
    repeats = 2 if options.quick else 5
    rng = random.Random(11)
    note("making groups …")
    tasks = draw_tasks(rng, _NUM_TASKS)
    groups = [
        make_group(rng.choice(tasks), reasoning, rng, num_chars=_CHARS) for _ in range(NUM_GROUPS)
    ]
    runs: dict[str, list[dict[str, float]]] = {"empty": [], "full": []}
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder, open_stage(Path(folder)) as stage:
        for number in range(repeats):
            for kind, found in runs.items():
                note(f"{kind} disk, start {number + 1} of {repeats} …")
                name = f"{kind}-{number}"
                stored = groups if kind == "full" else ()
                found.append(trio.run(_start_once, stage, Path(folder), name, stored))
    results: dict[str, Any] = {"groups": NUM_GROUPS, "repeats": repeats}
    for kind, found in runs.items():
        results[kind] = {key: round(median([run[key] for run in found]), 2) for key in found[0]}
        results[kind]["worst_silence_ms"] = round(
            max(run["longest_silence_ms"] for run in found), 1
        )
    return Report(results=results, goals=_goals(results))


def _goals(results: dict[str, Any]) -> list[Goal]:
    empty, full = results["empty"], results["full"]
    more_s = round(full["company_s"] - empty["company_s"], 2)
    stall_ms = full["worst_silence_ms"]
    restored = full["groups_restored"]
    return [
        at_most("company later than with an empty disk", more_s, _MORE_S, unit="s"),
        at_most("longest time without an answer to a ping", stall_ms, _STALL_MS, unit="ms"),
        Goal(
            what="groups in the buffer once it is ready",
            goal=str(NUM_GROUPS),
            measured=restored,
            met=restored == NUM_GROUPS,
        ),
    ]


async def _start_once(
    stage: ProcessManager, folder: Path, name: str, groups: Sequence[RolloutGroup]
) -> dict[str, float]:
    async with open_peer(Node, folder / f"watcher-{name}", swarm_name=SWARM_NAME) as watcher:
        node = stage.process(
            *("node", name, "--role=observe", "--no-mdns", "--listen", LOOPBACK),
            *("--bootstrap", address_of(watcher), "--swarm-name", SWARM_NAME),
        )
        if groups:
            await trio.to_thread.run_sync(fill, node.data_dir, groups)
        return await _watch(watcher, node)


async def _watch(watcher: NodeComponents, node: ShoalProcess) -> dict[str, float]:
    host, found = watcher.peer.host, dict[str, float]()
    started, pings = time.monotonic(), list[float]()
    node.launch()

    async def ping() -> None:
        with trio.fail_after(_PATIENCE_S):
            while not (connected := host.connected_peers()):  # noqa: ASYNC110
                await trio.sleep(0.005)
        found["connected_s"] = time.monotonic() - started
        (peer_id,), answered = connected, time.monotonic()
        while True:
            with contextlib.suppress(RequestError):  # it may not answer yet
                await host.ping(peer_id, timeout=60.0)
                pings.append((time.monotonic() - answered) * 1000)
                answered = time.monotonic()
            await trio.sleep(_PING_PAUSE_S)

    async def note_company() -> None:
        with trio.fail_after(_PATIENCE_S):
            while not _company(watcher):  # noqa: ASYNC110
                await trio.sleep(0.005)
        found["company_s"] = time.monotonic() - started

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ping)
        async with trio.open_nursery() as company:
            company.start_soon(note_company)
            await trio.to_thread.run_sync(node.wait_ready)
            found["ready_s"] = time.monotonic() - started
        await trio.sleep(_AFTER_S)
        nursery.cancel_scope.cancel()
    status = await trio.to_thread.run_sync(node.view)
    found["groups_restored"] = 0 if status is None else status["buffer"]["groups"]
    found["longest_silence_ms"] = max(pings, default=0.0)
    found["pings"] = len(pings)
    await trio.to_thread.run_sync(node.close)
    return found


def _company(watcher: NodeComponents) -> set[PeerId]:
    meshes = watcher.peer.gossip.mesh().values()
    return {member.peer_id for mesh in meshes for member in mesh}


if __name__ == "__main__":
    sys.exit(main("restart", __doc__ or "", measure))

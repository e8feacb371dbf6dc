"""The node under attack, for `benchmarks.flood`: a whole node with a probe in its loop.

Reads one word a line from standard input: `reset` starts a window, `report` prints what the window
showed as one JSON line. Ends with its input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psutil
import trio

from shoal_p2p.collector import spare_collector
from shoal_p2p.data_dir import IDENTITY_FILE
from shoal_p2p.live_node import LiveNode
from shoal_p2p.net.identity import load_or_create_identity
from shoal_p2p.node import Node
from shoal_p2p.threads import let_the_loop_in
from shoal_settings.schema import Settings

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
_TICK_S = 0.01


class Probe:
    """Measures how late the loop wakes a task that wants to run every 10 ms."""

    def __init__(self) -> None:
        self.lags_ms: list[float] = []
        self.peak_rss = 0

    async def run(self) -> None:
        process = psutil.Process()
        while True:
            before = trio.current_time()
            await trio.sleep(_TICK_S)
            self.lags_ms.append(max(0.0, trio.current_time() - before - _TICK_S) * 1000)
            if len(self.lags_ms) % 10 == 0:
                self.peak_rss = max(self.peak_rss, process.memory_info().rss)

    def reset(self) -> None:
        self.lags_ms.clear()
        self.peak_rss = psutil.Process().memory_info().rss


async def main(data_dir: Path) -> None:
    """Run the node until standard input ends."""
    probe = Probe()
    settings = Settings(data_dir=data_dir, listen=(LOOPBACK,), no_trainer=True, mdns=False)
    async with trio.open_nursery() as nursery:

        def on_ready(live: LiveNode) -> None:
            print(json.dumps(_hello(live)), flush=True)
            nursery.start_soon(_serve, node, live, probe)

        node = Node(
            identity=load_or_create_identity(data_dir / IDENTITY_FILE),
            settings=settings,
            on_ready=on_ready,
        )
        nursery.start_soon(probe.run)
        await node.run()
        nursery.cancel_scope.cancel()


async def _serve(node: Node, live: LiveNode, probe: Probe) -> None:
    async for line in trio.wrap_file(sys.stdin):
        if line.strip() == "report":
            print(json.dumps(_report(live, probe)), flush=True)
        probe.reset()
    node.stop()


def _hello(node: LiveNode) -> dict[str, Any]:
    return {"peer_id": node.member.peer_id, "address": node.member.host.listen_addrs()[0]}


def _report(node: LiveNode, probe: Probe) -> dict[str, Any]:
    process = psutil.Process()
    stats = node.buffer.stats(trio.current_time())
    return {
        "lags_ms": [round(lag, 2) for lag in probe.lags_ms],
        "rss": process.memory_info().rss,
        "peak_rss": max(probe.peak_rss, process.memory_info().rss),
        "cpu_s": sum(process.cpu_times()[:2]),
        "buffer_bytes": stats.bytes + stats.own_bytes,
        "received": {row.peer_id: row.stored_total for row in stats.per_publisher},
        "pubsub": dict(node.member.gossip.stats().pubsub),
    }


if __name__ == "__main__":
    spare_collector()
    let_the_loop_in()
    trio.run(main, Path(sys.argv[1]))

"""The transports against each other: the same gossip and requests over each, one Trio loop.

Four nodes, everyone connected to everyone. Each publishes batches of 60 KB at a fixed rate; then
one pulls 1 MiB answers from another. TCP is what shoal speaks; a circuit is two such connections
and a relay between; WebSocket is py-libp2p's own transport in our swarm.  Then one stream of
8 MiB between two stock hosts, for QUIC too, which our swarm has no place for.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from libp2p.transport.websocket.transport import WebsocketTransport
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from benchmarks.harness import ROOT, Options, Report, main, median, note, percentile
from benchmarks.settling import LATE_S, settle
from shoal_p2p.gossip.gossip import Libp2pGossip
from shoal_p2p.gossip.interface import Unwatched
from shoal_p2p.net.address import is_circuit, to_libp2p_id
from shoal_p2p.net.host import HostSettings, Libp2pHost, RequestError
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.net.relay_server import RelayServer
from shoal_p2p.peers.relay_client import RelayClient, RelayUse
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Verdict

DESCRIPTION = "Gossip and requests over TCP, IPv6, a relay, WebSocket and QUIC."
NUM_NODES = 4
BATCH_BYTES = 60_000
PULL_BYTES = 1 << 20
PER_SECOND = 2.0
"""Batches a second, of each node."""
ECHO = "/bench/blob/1"
PATIENCE_S = 60.0
"""For nodes to meet and form a mesh."""

_seeds = itertools.count(50_000)


@dataclass
class _Node:
    host: Libp2pHost
    gossip: Libp2pGossip
    heard: dict[bytes, float] = field(default_factory=dict)

    async def take(self, data: bytes, _author: PeerId, _forwarder: PeerId) -> Verdict:
        self.heard.setdefault(data[:16], time.perf_counter())
        return ACCEPT


@asynccontextmanager
async def _open(listen: str) -> AsyncIterator[_Node]:
    host = Libp2pHost(
        identity=identity_from_seed(next(_seeds).to_bytes(32, "big")),
        settings=HostSettings(listen=(listen,)),
    )
    node = _Node(host, Libp2pGossip(host=host, watch=Unwatched()))
    blob = os.urandom(PULL_BYTES)

    async def answer(_peer: PeerId, _request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return blob

    host.set_request_handler(ECHO, answer, max_request_bytes=64)
    async with trio.open_nursery() as nursery:
        await nursery.start(host.run)
        try:
            yield node
        finally:
            with trio.CancelScope(shield=True):
                await host.close()


Connect = Callable[[list[_Node]], Awaitable[None]]


async def _by_address(nodes: list[_Node]) -> None:
    for one, other in itertools.combinations(nodes, 2):
        await other.host.dial(one.host.listen_addrs()[0])


def _by_foreign(make: Callable[[Any, Libp2pHost], Any], address: str) -> Connect:
    """Connect over a transport that the host itself does not offer."""

    async def connect(nodes: list[_Node]) -> None:
        found: dict[PeerId, Multiaddr] = {}
        for node in nodes:
            swarm: Any = node.host.libp2p_host.get_network()  # type: ignore[attr-defined]
            transport = make(swarm, node.host)
            swarm.transport_manager.add_transport(transport)
            if hasattr(transport, "set_background_nursery"):
                transport.set_background_nursery(swarm.background_nursery)
            if hasattr(transport, "set_swarm"):
                transport.set_swarm(swarm)
            before = set(map(str, node.host.libp2p_host.get_transport_addrs()))  # type: ignore[attr-defined]
            await swarm.listen(Multiaddr(address))
            after = node.host.libp2p_host.get_transport_addrs()  # type: ignore[attr-defined]
            found[node.host.peer_id] = next(a for a in after if str(a) not in before)
        for one, other in itertools.combinations(nodes, 2):
            swarm = other.host.libp2p_host.get_network()  # type: ignore[attr-defined]
            with trio.fail_after(PATIENCE_S):
                target = found[one.host.peer_id]
                await swarm.dial_addr(target, to_libp2p_id(one.host.peer_id))

    return connect


async def _until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds, or patience ends."""
    with trio.move_on_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the library signals nothing
            await trio.sleep(0.05)


async def _exchange(nodes: list[_Node], seconds: float) -> dict[str, Any]:
    for node in nodes:
        await node.gossip.subscribe("/t", node.take)

    def meshed() -> bool:
        return all(len(n.gossip.mesh().get("/t", [])) == NUM_NODES - 1 for n in nodes)

    await _until(meshed)
    sent: dict[bytes, tuple[_Node, float]] = {}
    started, cpu = time.perf_counter(), time.process_time()
    for number in range(int(seconds * PER_SECOND)):
        for node in nodes:
            data = os.urandom(BATCH_BYTES)
            sent[data[:16]] = (node, time.perf_counter())
            await node.gossip.publish("/t", data)
        await trio.sleep(max(0.0, started + (number + 1) / PER_SECOND - time.perf_counter()))
    due = len(sent) * (NUM_NODES - 1)

    def delays_ms() -> list[float]:
        return [
            1000 * (at - sent[key][1])
            for node in nodes
            for key, at in node.heard.items()
            if key in sent and sent[key][0] is not node
        ]

    is_sure = await settle(
        due=due,
        arrived=lambda: len(delays_ms()),
        queued=lambda: sum(len(q) for n in nodes for q in n.gossip._queues.values()),
    )
    cpu_s = time.process_time() - cpu
    delays = delays_ms()
    delivered = len(delays)
    return {
        "delivered_share": round(delivered / due, 4),
        "of_it_late_share": round(sum(d > 1000 * LATE_S for d in delays) / due, 4),
        "lost" if is_sure else "not_yet_there": due - delivered,
        "delay_p50_ms": median(delays) if delays else None,
        "delay_p99_ms": percentile(delays, 0.99) if delays else None,
        "cpu_ms_a_delivery": 1000 * cpu_s / max(1, delivered),
    }


async def _pull(nodes: list[_Node], repeats: int) -> dict[str, Any]:
    rates: list[float] = []
    failed = 0
    for _ in range(repeats):
        started = time.perf_counter()
        try:
            await nodes[1].host.request(
                nodes[0].host.peer_id, ECHO, b"", max_response_bytes=PULL_BYTES, timeout=10
            )
            rates.append(PULL_BYTES / 1e6 / (time.perf_counter() - started))
        except RequestError:
            failed += 1
    return {"pull_mb_per_s": median(rates) if rates else None, "pulls_failed": failed}


async def _run(connect: Connect, listen: str, options: Options) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(_open(listen)) for _ in range(NUM_NODES)]
        await connect(nodes)
        gossip = await _exchange(nodes, 3.0 if options.quick else 15.0)
        return gossip | await _pull(nodes, 5 if options.quick else 20)


async def _run_relayed(options: Options) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(_open("/ip4/127.0.0.1/tcp/0"))
        RelayServer(relay.host).serve()
        nodes = [
            await stack.enter_async_context(_open("/ip4/127.0.0.1/tcp/0")) for _ in range(NUM_NODES)
        ]
        nursery = await stack.enter_async_context(trio.open_nursery())
        for node in nodes:
            client = RelayClient(host=node.host, use=RelayUse.ON)
            await nursery.start(client.run)
            await node.host.dial(relay.host.listen_addrs()[0])
            await _until(lambda client=client: client.relays)  # type: ignore[misc]
        for one, other in itertools.combinations(nodes, 2):
            await other.host.dial(next(a for a in one.host.listen_addrs() if is_circuit(a)))
        gossip = await _exchange(nodes, 3.0 if options.quick else 15.0)
        found = gossip | await _pull(nodes, 5 if options.quick else 20)
        nursery.cancel_scope.cancel()
        return found


def _websocket(swarm: Any, _host: Libp2pHost) -> Any:
    return WebsocketTransport(swarm.upgrader)


def _stream_rate(listen: str, repeats: int) -> float | None:
    """Return the median MB/s of one stream between two stock hosts; None if it never ended."""
    rates: list[float] = []
    for _ in range(repeats):
        command = [sys.executable, "-m", "benchmarks.transport_stream", listen]
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
            )
            rates.append(float(done.stdout))
        except (subprocess.SubprocessError, ValueError) as error:
            note(f"{listen}: {error}")
    return median(rates) if rates else None


def measure(options: Options) -> Report:
    """Run the load over each transport; one that breaks is reported by its error."""
    v4, v6 = "/ip4/127.0.0.1/tcp/0", "/ip6/::1/tcp/0"
    runs: Mapping[str, Callable[[], Awaitable[dict[str, Any]]]] = {
        "tcp_ipv4": lambda: _run(_by_address, v4, options),
        "tcp_ipv6": lambda: _run(_by_address, v6, options),
        "relay": lambda: _run_relayed(options),
        "websocket": lambda: _run(_by_foreign(_websocket, f"{v4}/ws"), v4, options),
    }
    results: dict[str, Any] = {}
    for name, run in runs.items():
        try:
            results[name] = trio.run(run)
        except Exception as error:  # noqa: BLE001 - what a transport raises is the result
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            results[name] = {"failed": f"{type(error).__name__}: {error}"[:200]}
    repeats = 1 if options.quick else 3
    results["one_stream_of_stock_hosts_mb_per_s"] = {
        "tcp": _stream_rate(v4, repeats),
        "websocket": _stream_rate(f"{v4}/ws", repeats),
        "quic": _stream_rate("/ip4/127.0.0.1/udp/0/quic-v1", repeats),
    }
    return Report(results=results)


if __name__ == "__main__":
    raise SystemExit(main("transports", DESCRIPTION, measure))

"""A big batch, announced and pulled, beside the same batch gossiped whole.

Eight nodes in one loop (real libp2p, gossip, store, validation; no trainers, an instant task
worker), all connected. The nodes take turns publishing a batch, alternately announced and whole,
until it is in every other node's buffer. Bytes in are those of the sockets, all protocols' own
included; copies are bytes in over the batch's size; latency runs from the publisher's call to the
groups' entry into another node's buffer. Random text: it hardly compresses.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio

from benchmarks.harness import Options, Report, at_most, main, median, note, percentile
from shoal_ipc import messages as m
from shoal_p2p.fetch.asker import ANSWER_SECONDS
from shoal_p2p.net.pipes import SocketPipe
from shoal_wire.types import RolloutGroup
from tests.support import factories as make
from tests.support.exchange_nodes import NO_BACKFILL, ExchangeNode, big_groups, open_exchange

NODES = 8
SIZES = {"100 KB": 100_000, "300 KB": 300_000, "900 KB": 900_000}
ONLY_PULLED = {"3 MB": 3_000_000}
"""Over the cap of a gossip message: there is nothing to compare with."""
_PATIENCE_SECONDS = 60.0


class SocketMeter:
    """Counts what all sockets of this process receive."""

    def __init__(self) -> None:
        self.num_bytes = 0
        plain = trio.SocketStream.receive_some
        meter = self

        async def counting(
            stream: trio.SocketStream, max_bytes: int | None = None
        ) -> bytes | bytearray:
            data = await plain(stream, max_bytes)
            meter.num_bytes += len(data)
            return data

        trio.SocketStream.receive_some = counting  # type: ignore[method-assign]
        receive = SocketPipe.receive

        async def counting_pieces(pipe: SocketPipe) -> bytes:
            data = await receive(pipe)
            meter.num_bytes += len(data)
            return data

        SocketPipe.receive = counting_pieces  # type: ignore[method-assign]


class Sample:
    """Costs of one publication."""

    def __init__(self, *, size: int, bytes_in: int, cpu_s: float, latencies: list[float]) -> None:
        others = NODES - 1
        self.copies = bytes_in / others / size
        self.kib_in = bytes_in / others / 1024
        self.cpu_ms = 1000 * cpu_s / others
        self.latencies_ms = [1000 * seconds for seconds in latencies]


def measure(options: Options) -> Report:
    """Publish in turns and measure."""
    return trio.run(_measure, 3 if options.quick else 12)


async def _measure(repeats: int) -> Report:
    meter = SocketMeter()
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        async with open_exchange(
            Path(folder),
            NODES,
            settings=replace(NO_BACKFILL, answer_seconds=ANSWER_SECONDS),
            max_message_bytes=1_000_000,
            max_batch_bytes=8 << 20,
        ) as nodes:
            note("connecting …")
            for i, node in enumerate(nodes):
                for other in nodes[:i]:
                    await node.host.dial(other.address)
            await trio.sleep(5)  # meshes settle
            await _repeat(nodes, meter, samples, repeats)
    return _report(samples)


async def _repeat(
    nodes: list[ExchangeNode],
    meter: SocketMeter,
    samples: dict[tuple[str, str], list[Sample]],
    repeats: int,
) -> None:
    task = 0
    for turn in range(-1, repeats):
        for name, size in {**SIZES, **ONLY_PULLED}.items():
            for way in ("pulled", "whole") if name in SIZES else ("pulled",):
                note(f"{name} {way} …")
                groups = big_groups(task, size)
                task += len(groups)
                sample = await _publish(nodes, meter, turn, groups, whole=way == "whole")
                if turn >= 0:  # the first turn warms up
                    samples[name, way].append(sample)


async def _publish(
    nodes: list[ExchangeNode],
    meter: SocketMeter,
    turn: int,
    groups: list[RolloutGroup],
    *,
    whole: bool,
) -> Sample:
    publisher = nodes[turn % NODES]
    others = [node for node in nodes if node is not publisher]
    before = {node.peer_id: node.pool.groups_received for node in others}
    request = make.publish(groups, key=b"bench %d" % time.perf_counter_ns())
    latencies: list[float] = []
    bytes_before, cpu_before = meter.num_bytes, time.process_time()
    started = trio.current_time()

    async def wait(node: ExchangeNode) -> None:
        while node.pool.groups_received < before[node.peer_id] + len(groups):  # noqa: ASYNC110
            await trio.sleep(0.002)
        latencies.append(trio.current_time() - started)

    with trio.fail_after(_PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            for node in others:
                nursery.start_soon(wait, node)
            size = await _send(publisher, request, whole=whole)
    await trio.sleep(0.5)  # copies that are still on their way count too
    return Sample(
        size=size,
        bytes_in=meter.num_bytes - bytes_before,
        cpu_s=time.process_time() - cpu_before,
        latencies=latencies,
    )


async def _send(publisher: ExchangeNode, request: m.Publish, *, whole: bool) -> int:
    """Publish as the outbox does, or past it; return the envelope's size."""
    if not whole:
        accepted = await publisher.outbox.accept(request)
        assert accepted.signed is not None
        publisher.pool.keep_own(accepted.signed)
        return len(accepted.signed.envelope)
    own = await publisher.store.reserve_own(
        request.client_key,
        lambda sequence, previous: publisher.outbox.seal(request, sequence, previous).envelope,
    )
    assert own.envelope is not None
    topic = publisher.manifest.topic(publisher.manifest.shard_of(publisher.peer_id))
    await publisher.gossip.publish(topic, own.envelope)
    return len(own.envelope)


def _report(samples: dict[tuple[str, str], list[Sample]]) -> Report:
    results: dict[str, Any] = {"nodes": NODES, "batches_each": len(next(iter(samples.values())))}
    for (name, way), found in samples.items():
        latencies = [ms for sample in found for ms in sample.latencies_ms]
        results.setdefault(name, {})[way] = {
            "copies_received": round(median([sample.copies for sample in found]), 2),
            "kib_in_per_node": round(median([sample.kib_in for sample in found])),
            "latency_ms_p50": round(median(latencies), 1),
            "latency_ms_p99": round(percentile(latencies, 0.99), 1),
            "cpu_ms_per_delivery": round(median([sample.cpu_ms for sample in found]), 1),
        }
    goals = []
    for name in SIZES:
        pulled, whole = results[name]["pulled"], results[name]["whole"]
        ratio = results[name]["pulled_over_whole"] = {
            "bytes_in": round(pulled["kib_in_per_node"] / whole["kib_in_per_node"], 3),
            "latency_p50": round(pulled["latency_ms_p50"] / whole["latency_ms_p50"], 3),
            "cpu": round(pulled["cpu_ms_per_delivery"] / whole["cpu_ms_per_delivery"], 3),
        }
        goals.append(at_most(f"{name}: bytes in, pulled against whole", ratio["bytes_in"], 0.4))
    copies = max(results[name]["pulled"]["copies_received"] for name in (*SIZES, *ONLY_PULLED))
    goals.append(at_most("copies of a pulled batch", copies, 1.1))
    return Report(results=results, goals=goals)


if __name__ == "__main__":
    sys.exit(main("big_batches", __doc__ or "", measure))

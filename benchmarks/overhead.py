"""Messages a second into a whole node, beside a bare py-libp2p subscriber of the same bytes.

One process publishes sealed batches (one group of eight completions of 200 characters) from eight
hosts, 64 on their way at a time, so that the slower receiver loses none. Receiver, in a process of
its own: a node, which checks both signatures, decompresses, checks the rules and the task's
question by the task worker, and fills its buffer and its disk; or py-libp2p's own host with Pubsub
and GossipSub, strict signing, its spam protection off and its log as silent as the node.s, which
does nothing with what it hears. They take turns; both get the same messages.
"""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import psutil
import trio

from benchmarks.groups import POLICY, SAMPLING, draw_tasks, make_group
from benchmarks.harness import ROOT, Options, Report, at_least, main, median, note
from benchmarks.texts import reasoning
from shoal_p2p.collector import spare_collector
from shoal_p2p.gossip.gossip import Libp2pGossip
from shoal_p2p.gossip.interface import Unwatched
from shoal_p2p.live_node import LiveNode
from shoal_p2p.net.host import HostSettings, Libp2pHost
from shoal_p2p.net.identity import Identity, identity_from_seed
from shoal_p2p.node import Node
from shoal_settings.schema import Settings
from shoal_tasks.families import EASY
from shoal_tasks.swarm import families_of
from shoal_wire.codec import encode_batch
from shoal_wire.envelope import seal
from shoal_wire.manifest import Manifest, SwarmRules, make_manifest
from shoal_wire.types import RolloutBatch, RolloutGroup

PUBLISHERS = 8
CHARS = 200
_NUM_TASKS = 256
_WINDOW = 64
_QUIET_S = 5.0
"""Nothing new for so long: what is missing is lost."""
_GOAL = 1.0


def measure(options: Options) -> Report:
    """Run both receivers in turn."""
    repeats, count = (1, 400) if options.quick else (3, 1600)
    rng = random.Random(4)
    manifest = make_manifest("shoal", families_of(EASY), SwarmRules())
    note("drawing tasks …")
    tasks = draw_tasks(rng, _NUM_TASKS)
    groups = [make_group(rng.choice(tasks), reasoning, rng, num_chars=CHARS) for _ in range(count)]
    runs: dict[str, list[dict[str, float]]] = {"node": [], "bare": []}
    for _ in range(repeats):
        for kind, found in runs.items():
            note(f"{kind} …")
            found.append(_run(kind, manifest, groups))
    rates = {kind: median([run["per_s"] for run in found]) for kind, found in runs.items()}
    ratio = median(
        [a["per_s"] / b["per_s"] for a, b in zip(runs["node"], runs["bare"], strict=True)]
    )
    results: dict[str, Any] = {
        f"{kind}_{key}": round(median([run[key] for run in found]), 3)
        for kind, found in runs.items()
        for key in found[0]
    }
    results["node_beside_bare"] = round(ratio, 3)
    goal = at_least(
        f"node's messages a second beside bare py-libp2p's ({rates['bare']:.0f})",
        round(ratio, 3),
        _GOAL,
    )
    return Report(results=results, goals=[goal])


def _run(kind: str, manifest: Manifest, groups: list[RolloutGroup]) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        topic = manifest.topic(0)
        receiver = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.overhead", kind, folder, topic, str(len(groups))],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert receiver.stdout is not None
        try:
            address = json.loads(receiver.stdout.readline())["address"]
            return trio.run(_publish_all, manifest, groups, topic, address, receiver.stdout)
        finally:
            receiver.kill()
            receiver.wait()


# The publishers: the same for both


async def _publish_all(
    manifest: Manifest, groups: list[RolloutGroup], topic: str, address: str, answers: IO[bytes]
) -> dict[str, float]:
    window = _Window()
    async with trio.open_nursery() as nursery:
        hosts = []
        for number in range(PUBLISHERS):
            identity = identity_from_seed(bytes([number + 1]) * 32)
            host = Libp2pHost(
                identity=identity, settings=HostSettings(listen=("/ip4/127.0.0.1/tcp/0",))
            )
            gossip = Libp2pGossip(host=host, watch=Unwatched())
            await nursery.start(host.run)
            await host.dial(address)
            hosts.append((identity, host, gossip))
        with trio.fail_after(60):
            while not all(gossip.topic_peers(topic) for _, _, gossip in hosts):  # noqa: ASYNC110
                await trio.sleep(0.05)
        await trio.sleep(1.0)
        async with trio.open_nursery() as publishing:
            for number, (identity, _, gossip) in enumerate(hosts):
                share = groups[number::PUBLISHERS]
                envelopes = [_sealed(identity, manifest, n, g) for n, g in enumerate(share)]
                publishing.start_soon(_publish, gossip, topic, envelopes, window)
            while "per_s" not in (answer := await _next(answers)):
                window.received = int(answer["count"])
                window.moved.set()
                window.moved = trio.Event()
            # What was lost must not hold up who waits for it.
            publishing.cancel_scope.cancel()
        for _, host, _ in hosts:
            await host.close()
        nursery.cancel_scope.cancel()
    return answer


async def _next(answers: IO[bytes]) -> dict[str, float]:
    found: dict[str, float] = json.loads(await trio.to_thread.run_sync(answers.readline))
    return found


class _Window:
    """Bounds how many messages are on their way."""

    def __init__(self) -> None:
        self.sent = self.received = 0
        self.moved = trio.Event()

    async def enter(self) -> None:
        """Wait for room, and take it."""
        while self.sent - self.received >= _WINDOW:
            await self.moved.wait()
        self.sent += 1


def _sealed(identity: Identity, manifest: Manifest, number: int, group: RolloutGroup) -> bytes:
    batch = RolloutBatch(
        swarm_digest=manifest.digest,
        sequence=number + 1,
        round=1,
        created_ms=int(time.time() * 1000),
        policy=POLICY,
        sampling=SAMPLING,
        groups=(group,),
    )
    return seal(encode_batch(batch), public_key=identity.public_key_bytes, sign=identity.sign)


async def _publish(
    gossip: Libp2pGossip, topic: str, envelopes: list[bytes], window: _Window
) -> None:
    for envelope in envelopes:
        await window.enter()
        await gossip.publish(topic, envelope)


# The receivers


class _Clock:
    """Arrival times of messages."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self.count = 0
        self._first = self._last = 0.0
        self._cpu = 0.0

    def hit(self) -> None:
        """One more."""
        now = time.perf_counter()
        if not self.count:
            self._first, self._cpu = now, time.process_time()
        self.count += 1
        self._last = now

    async def done(self) -> dict[str, float]:
        """Tell the count until all came, or none for a while; return the figures."""
        told = 0
        while self.count < self._expected:
            if self.count and time.perf_counter() - self._last > _QUIET_S:
                break
            if self.count > told:
                told = self.count
                print(json.dumps({"count": told}), flush=True)
            await trio.sleep(0.005)
        return {
            "per_s": (self.count - 1) / max(1e-9, self._last - self._first),
            "cpu_ms_a_message": 1000 * (time.process_time() - self._cpu) / max(1, self.count),
            "received_share": self.count / self._expected,
            "rss_mib": psutil.Process().memory_info().rss / (1 << 20),
        }


async def _receive_as_node(folder: Path, expected: int) -> None:
    clock = _Clock(expected)
    ready = trio.Event()
    settings = Settings(
        data_dir=folder, listen=("/ip4/127.0.0.1/tcp/0",), no_trainer=True, mdns=False
    )
    live: list[LiveNode] = []

    def on_ready(node: LiveNode) -> None:
        add = node.recent.add

        def count(*arguments: Any, **named: Any) -> None:
            clock.hit()
            add(*arguments, **named)

        node.recent.add = count  # type: ignore[method-assign]
        live.append(node)
        ready.set()

    node = Node(identity=identity_from_seed(b"n" * 32), settings=settings, on_ready=on_ready)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run)
        await ready.wait()
        while live[0].member.worker.report is None:  # noqa: ASYNC110
            await trio.sleep(0.05)
        print(json.dumps({"address": live[0].member.host.listen_addrs()[0]}), flush=True)
        print(json.dumps(await clock.done()), flush=True)
        await trio.sleep_forever()


async def _receive_bare(topic: str, expected: int) -> None:
    from libp2p import new_host
    from libp2p.crypto.ed25519 import create_new_key_pair
    from libp2p.pubsub.gossipsub import PROTOCOL_ID_V12, GossipSub
    from libp2p.pubsub.pubsub import Pubsub
    from libp2p.tools.anyio_service import background_trio_service
    from multiaddr import Multiaddr  # type: ignore[import-untyped]

    # The node's host does so too; else the library's warnings would be a part of what is compared.
    logging.getLogger("libp2p").setLevel(logging.CRITICAL)
    clock = _Clock(expected)
    host = new_host(key_pair=create_new_key_pair(b"b" * 32))
    router = GossipSub(
        protocols=[PROTOCOL_ID_V12],
        degree=6,
        degree_low=4,
        degree_high=12,
        heartbeat_interval=1,
        spam_protection_enabled=False,
        adaptive_gossip_enabled=False,
    )
    pubsub = Pubsub(host, router)
    async with (
        host.run(listen_addrs=[]),
        background_trio_service(pubsub),
        background_trio_service(router),
    ):
        await pubsub.wait_until_ready()
        await host.get_network().listen(Multiaddr("/ip4/127.0.0.1/tcp/0"))
        subscription = await pubsub.subscribe(topic)
        print(json.dumps({"address": str(host.get_addrs()[0])}), flush=True)

        async def drain() -> None:
            while True:
                await subscription.get()
                clock.hit()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain)
            print(json.dumps(await clock.done()), flush=True)
            await trio.sleep_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["node"]:
        spare_collector()  # as a node's process does
        trio.run(_receive_as_node, Path(sys.argv[2]), int(sys.argv[4]))
    elif sys.argv[1:2] == ["bare"]:
        trio.run(_receive_bare, sys.argv[3], int(sys.argv[4]))
    else:
        sys.exit(main("overhead", __doc__ or "", measure))

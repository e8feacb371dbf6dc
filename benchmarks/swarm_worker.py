"""Many whole nodes in one Trio loop, controlled by JSON lines. Started by `swarm_fleet`.

Each node is complete with two exceptions: the nodes of one process share a task worker, which would
take 110 MiB each, and none has a trainer.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import trio
from libp2p.io.trio import TrioTCPStream

from benchmarks.groups import draw_tasks, make_group, publish_request
from benchmarks.texts import reasoning
from shoal_base.collector import spare_collector
from shoal_bootstrap.peer import BootstrapPeer, MeetingPoint
from shoal_ipc import messages as m
from shoal_ipc.answers.form import to_json
from shoal_p2p.gossip.outbound import OutboundQueue
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.net.host import HostSettings, Libp2pHost
from shoal_p2p.net.identity import Identity, identity_from_seed
from shoal_p2p.net.pipes import SocketPipe
from shoal_p2p.node import Node
from shoal_p2p.parts import Dependencies, Libp2pNetwork, Network
from shoal_p2p.rollouts.outbox import MAX_PACED_GROUPS, OutboxFullError
from shoal_settings.schema import Settings
from shoal_tasks.families import EASY
from shoal_tasks.wire_tasks import coordinates_of
from shoal_tasks.worker.trio_client import TrioTaskWorker
from shoal_wire.types import PeerId, PublishedGroup, Task

_NUM_TASKS = 128
_TASKS_SEED = 1
_RETRY_S = 0.5
"""Pause of a publisher whose batch its node has refused for now, as a trainer's."""


class SharedWorker:
    """A node's task worker that is the process's."""

    report = None

    def __init__(self, real: TrioTaskWorker) -> None:
        self._real = real

    async def run(self, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        await trio.sleep_forever()

    async def question_digests(self, tasks: Any) -> Any:
        """Ask the real one."""
        return await self._real.question_digests(tasks)

    def known_digests(self, tasks: Any) -> Any:
        """Ask the real one, which remembers."""
        return self._real.known_digests(tasks)

    async def questions(self, tasks: Any) -> Any:
        """Ask the real one."""
        return await self._real.questions(tasks)

    async def items(self, tasks: Any) -> Any:
        """Ask the real one."""
        return await self._real.items(tasks)

    async def score(self, requests: Any) -> Any:
        """Ask the real one."""
        return await self._real.score(requests)


class Arrivals:
    """Records when the first group of each batch enters a node's buffer."""

    def __init__(self, node: NodeComponents) -> None:
        self.at: dict[str, float] = {}
        node.recent.add = self._note  # type: ignore[method-assign]

    def _note(self, group: PublishedGroup, **_when: Any) -> None:
        self.at.setdefault(group.batch_id.hex(), time.time())


class Traffic:
    """Bytes read from and written to TCP by this process."""

    def __init__(self) -> None:
        self.read = 0
        self.written = 0
        read, write = TrioTCPStream.read, TrioTCPStream.write

        @functools.wraps(read)
        async def counted_read(stream: Any, n: int | None = None) -> bytes:
            data: bytes = await read(stream, n)
            self.read += len(data)
            return data

        @functools.wraps(write)
        async def counted_write(stream: Any, data: bytes) -> None:
            self.written += len(data)
            await write(stream, data)

        TrioTCPStream.read = counted_read
        TrioTCPStream.write = counted_write
        self._count_pipes()
        self.by_kind: Counter[str] = Counter()
        """Bytes that nodes send: messages and control of gossip, each protocol of requests."""
        self._count_gossip()
        self._count_requests()

    def _count_gossip(self) -> None:
        push = OutboundQueue.push

        @functools.wraps(push)
        def counted_push(queue: OutboundQueue, frame: bytes, *, control: bool = False) -> bool:
            self.by_kind["gossip control" if control else "gossip messages"] += len(frame)
            return push(queue, frame, control=control)

        OutboundQueue.push = counted_push  # type: ignore[method-assign]

    def _count_requests(self) -> None:
        ask = Libp2pHost._request

        @functools.wraps(ask)
        async def counted_ask(
            host: Libp2pHost, peer: PeerId, protocol: str, payload: bytes, most: int
        ) -> bytes:
            answer = await ask(host, peer, protocol, payload, most)
            self.by_kind[protocol] += len(payload) + len(answer)
            return answer

        Libp2pHost._request = counted_ask  # type: ignore[method-assign]

    def _count_pipes(self) -> None:
        """After the handshake a connection reads and writes its socket itself."""
        receive, start_send = SocketPipe.receive, SocketPipe.start_send

        @functools.wraps(receive)
        async def counted_receive(pipe: SocketPipe) -> bytes:
            data = await receive(pipe)
            self.read += len(data)
            return data

        @functools.wraps(start_send)
        def counted_start_send(pipe: SocketPipe, data: bytes) -> bool:
            self.written += len(data)
            return start_send(pipe, data)

        SocketPipe.receive = counted_receive  # type: ignore[method-assign]
        SocketPipe.start_send = counted_start_send  # type: ignore[method-assign]


def network_through(proxies: dict[str, int]) -> Callable[[Identity, HostSettings], Network]:
    """Return a network whose dials go through the proxy of their target's port, if it has one."""

    class Proxied(Libp2pHost):
        async def dial(self, address: str, *, timeout: float = 10.0) -> PeerId:  # noqa: ASYNC109
            parts = address.split("/")
            parts[4] = str(proxies.get(parts[4], parts[4]))
            return await super().dial("/".join(parts), timeout=timeout)

    class Through(Libp2pNetwork):
        def __init__(self, identity: Identity, settings: HostSettings) -> None:
            self.host = Proxied(identity=identity, settings=settings)

    return Through if proxies else Libp2pNetwork


class Fleet:
    """The nodes of this process."""

    def __init__(self, config: dict[str, Any], parts: Dependencies, worker: TrioTaskWorker) -> None:
        self.config = config
        self._worker = worker
        self._parts = parts
        self.nodes: list[NodeComponents] = []
        self._arrivals: dict[str, Arrivals] = {}
        self.traffic = Traffic()
        self.rng = random.Random(config["seed"])
        self._tasks: Iterator[Task] = iter(())
        self.published: dict[str, tuple[str, float]] = {}
        self.num_refused = 0
        """Batches of the latest pace that their node accepted only after a refusal."""
        self._keys = itertools.count(config["seed"] << 32)
        self._requests: list[m.Publish] = []
        """Batches drawn by `prepare`."""
        self._late = 0.0

    async def start(self, nursery: trio.Nursery) -> list[str]:
        """Start all; return their addresses."""
        folder = Path(self.config["folder"])
        addresses = []
        for number, seed in enumerate(self.config["identities"]):
            home = folder / f"n{number}"
            home.mkdir(parents=True)
            identity = identity_from_seed(bytes.fromhex(seed))
            settings = Settings(data_dir=home, **self._settings(self.config["ports"][number]))
            peer = await self._start_one(nursery, identity, settings)
            addresses.append(peer.member.host.listen_addrs()[0])
        if not self.config["is_bootstrap"]:
            # The same in every process and cached by the shared worker: a worker that computes for
            # many nodes would be overloaded first. With `new_questions` each process has its own
            # questions, which other processes receive with the batch.
            are_new = self.config.get("new_questions", False)
            rng = random.Random(self.config["seed"] if are_new else _TASKS_SEED)
            tasks = await trio.to_thread.run_sync(draw_tasks, rng, _NUM_TASKS)
            self._tasks = itertools.cycle(tasks)
            if not are_new:
                await self._worker.question_digests([coordinates_of(task) for task in tasks])
        return addresses

    def _settings(self, port: int) -> dict[str, Any]:
        return {
            "listen": (f"/ip4/127.0.0.1/tcp/{port}",),
            "role": "observe",
            "mdns": False,
            **{k: tuple(v) if isinstance(v, list) else v for k, v in self.config["keys"].items()},
        }

    async def _start_one(
        self, nursery: trio.Nursery, identity: Identity, settings: Settings
    ) -> NodeComponents | MeetingPoint:
        ready = trio.Event()
        found: list[Any] = []
        peer = (BootstrapPeer if self.config["is_bootstrap"] else Node)(
            identity=identity,
            settings=settings,
            parts=self._parts,
            on_ready=lambda live: (found.append(live), ready.set()),
        )
        nursery.start_soon(peer.run)
        await ready.wait()
        (live,) = found
        if not self.config["is_bootstrap"]:
            self.nodes.append(live)
            self._arrivals[live.member.peer_id] = Arrivals(live)
        return live

    async def publish(self, *, every_s: float, seconds: float, groups: int, chars: int) -> Any:
        """Publish from every node at an even pace, the nodes spread over it."""
        self.published = {}
        self.num_refused = 0
        self._late = 0.0
        start = trio.current_time() + 0.5
        offset = self.config["offset"]
        async with trio.open_nursery() as nursery:
            for number, node in enumerate(self.nodes):
                first = start + every_s * (offset + number) / self.config["num_nodes"]
                nursery.start_soon(
                    self._publish_one, node, first, every_s, start + seconds, groups, chars
                )
        return {
            "published": self.published,
            "late_s": self._late,
            "told_to_wait": self.num_refused,
        }

    async def _publish_one(
        self,
        node: NodeComponents,
        first: float,
        every_s: float,
        end: float,
        groups: int,
        chars: int,
    ) -> None:
        due = first
        while due < end:
            request = self._requests.pop() if self._requests else self._draw(groups, chars)
            await trio.sleep_until(due)
            self._late = max(self._late, trio.current_time() - due)
            await self._accept(node, request, end)
            due += every_s

    async def prepare(self, *, count: int, groups: int, chars: int) -> None:
        """Draw that many batches for every node now, so that `publish` spends no CPU on it."""
        await trio.lowlevel.checkpoint()
        self._requests = [self._draw(groups, chars) for _ in range(count * len(self.nodes))]

    def _draw(self, groups: int, chars: int) -> m.Publish:
        drawn = [
            make_group(next(self._tasks), reasoning, self.rng, num_chars=chars)
            for _ in range(groups)
        ]
        return publish_request(next(self._keys), drawn)

    async def _accept(self, node: NodeComponents, request: m.Publish, end: float) -> None:
        """Submit a batch as a trainer does: retry while the node refuses it."""
        is_refused = False
        while trio.current_time() < end:
            called = time.time()
            try:
                own = await node.outbox.accept(request, max_groups=MAX_PACED_GROUPS)
            except OutboxFullError:
                self.num_refused += not is_refused
                is_refused = True
                await trio.sleep(_RETRY_S)
                continue
            assert own.signed is not None
            self.published[own.batch_id.hex()] = (node.member.peer_id, called)
            node.pool.keep_own(own.signed)
            return

    async def snapshot(self) -> Any:
        """Return CPU, bytes, and each node's connections and mesh."""
        await trio.lowlevel.checkpoint()
        process = psutil.Process()
        children = process.children(recursive=True)
        return {
            "cpu_s": time.process_time(),
            "worker_cpu_s": sum(sum(child.cpu_times()[:2]) for child in children),
            "read": self.traffic.read,
            "written": self.traffic.written,
            "by_kind": dict(self.traffic.by_kind),
            "rss": process.memory_info().rss,
            "nodes": [
                {
                    "peer_id": node.member.peer_id,
                    "peers": len(node.member.host.connected_peers()),
                    "mesh": sum(len(members) for members in node.member.gossip.mesh().values()),
                    "topic_peers": sum(
                        len(node.member.gossip.topic_peers(topic))
                        for topic in node.member.gossip.topics()
                    ),
                    "shards": list(node.member.shards.shards),
                    "own_shard": node.member.shards.own_shard(),
                    "unsent": node.outbox.num_unsent,
                    "late_s": node.outbox.late_s,
                    "received": node.member.gossip.stats().pubsub.get("received", 0),
                    "forwarded": node.member.gossip.stats().pubsub.get("forwarded", 0),
                    "verdicts": to_json(node.member.guard.verdicts.totals()),
                }
                for node in self.nodes
            ],
        }

    async def arrivals(self) -> Any:
        """Return, for each node, when which batch entered its buffer."""
        await trio.lowlevel.checkpoint()
        return {peer_id: arrivals.at for peer_id, arrivals in self._arrivals.items()}

    async def connected(self) -> Any:
        """Return the peers to which each node is connected."""
        await trio.lowlevel.checkpoint()
        return {
            node.member.peer_id: {
                "peers": sorted(node.member.host.connected_peers()),
                "mesh": [
                    one.peer_id for members in node.member.gossip.mesh().values() for one in members
                ],
            }
            for node in self.nodes
        }


async def main(config: dict[str, Any]) -> None:
    """Start the nodes, report it, and obey standard input until it ends."""
    async with trio.open_nursery() as nursery:
        worker = TrioTaskWorker(EASY)
        await nursery.start(worker.run)
        parts = Dependencies(
            network=network_through(config["proxies"]),
            worker=lambda _families, _patience_s: SharedWorker(worker),
        )
        fleet = Fleet(config, parts, worker)
        async with trio.open_nursery() as lives:
            addresses = await fleet.start(lives)
            print(json.dumps({"addresses": addresses}), flush=True)
            commands: dict[str, Callable[..., Awaitable[Any]]] = {
                "prepare": fleet.prepare,
                "publish": fleet.publish,
                "snapshot": fleet.snapshot,
                "arrivals": fleet.arrivals,
                "connected": fleet.connected,
            }
            while line := await trio.to_thread.run_sync(sys.stdin.readline):
                command = json.loads(line)
                answer = await commands[command.pop("do")](**command)
                print(json.dumps(answer), flush=True)
            lives.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    spare_collector()
    trio.run(main, json.loads(sys.argv[1]))

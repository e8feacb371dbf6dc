"""A swarm in memory: nodes on a simulated network, in one loop, under a clock that rounds move.

    Rounds ─▶ MemoryLink ─────▶ the node's service ─▶ sign ─▶ gossip ─▶ every other member:
                   ▲                                            validate ─▶ ledger ─▶ buffer
                   └──────────────── sample (lease) ◀────────────────────────────────┘

Every member is a complete `Node` except for sockets, threads, the clock, and the task worker, which
all share. A member that only publishes listens to nothing.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio
import trio.testing

from shoal_ipc import messages as m
from shoal_lab.experiment.run.tasks import SharedWorker
from shoal_lab.simulation.clock import pass_time, run_now
from shoal_lab.simulation.network import LinkSettings, SimulatedNetwork
from shoal_lab.simulation.parts import Idle, NoSocket, simulated_parts
from shoal_p2p.ipc.inspector import InspectorService
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.net.identity import Identity, identity_from_seed
from shoal_p2p.node import Node
from shoal_p2p.parts import Dependencies
from shoal_policy.node.link import NodeLink
from shoal_settings.schema import Settings
from shoal_tasks.run_memory import save_manifest
from shoal_tasks.types import (
    Play,
    PlayRequest,
    ScoreRequest,
    ScoreResult,
    TaskCoordinates,
    TaskItem,
)
from shoal_wire.manifest import Manifest
from shoal_wire.types import Digest, GroupId, PeerId, PublishedGroup

_HOLDER = "trainer"
_START_MS = 1_700_000_000_000
"""Start of virtual time in milliseconds since 1970; any moment would do."""
_LINKS = LinkSettings(least_latency_s=0.0005, most_latency_s=0.001, jitter=0.0)
_MEETING_S = 3.0
"""Seconds for hosts to dial each other, announce subscriptions, and mesh."""
_TURN_S = 0.05
"""Least time of one member's turn, in seconds: its batch has reached all members by then."""


def identity_of(seed: int) -> Identity:
    """Return a member's identity, the same for the same seed.

    For experiments only: the key follows from the seed.
    """
    return identity_from_seed(hashlib.sha256(f"experiment key {seed}".encode()).digest())


class _Worker(Idle):
    """The swarm's one task worker, with each node's interface to it."""

    report = None

    def __init__(self, worker: SharedWorker) -> None:
        self._worker = worker

    async def question_digests(self, tasks: list[TaskCoordinates]) -> list[Digest]:
        """Return one digest per task."""
        await trio.lowlevel.checkpoint()
        return self._worker.question_digests(tasks)

    def known_digests(self, _tasks: Sequence[TaskCoordinates]) -> None:
        """Call the worker each time: it has its own cache."""

    async def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """Return one question per task."""
        await trio.lowlevel.checkpoint()
        return self._worker.questions(tasks)

    async def items(self, tasks: Sequence[TaskCoordinates]) -> list[TaskItem]:
        """Return one question and its answer per task."""
        await trio.lowlevel.checkpoint()
        return self._worker.items(tasks)

    async def draw_for_judge(self, rng: random.Random) -> tuple[TaskCoordinates, str]:
        """Return a judge's task and its question."""
        await trio.lowlevel.checkpoint()
        return self._worker.draw_for_judge(rng)

    async def play(self, requests: Sequence[PlayRequest]) -> list[Play]:
        """Return environments' answers to the beginnings of games."""
        await trio.lowlevel.checkpoint()
        return self._worker.play(requests)

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Return one result per request."""
        await trio.lowlevel.checkpoint()
        return self._worker.score(requests)


class MemorySwarm:
    """Members on one network. Use it inside `trio.run` with a MockClock that stands still."""

    def __init__(self, *, folder: Path, seed: int, clock: trio.testing.MockClock) -> None:
        """Members keep their files under `folder`."""
        self._folder = folder
        self._seed = seed
        self._clock = clock
        self._network = SimulatedNetwork(random.Random(f"{seed}/network"), _LINKS)

    async def open(
        self,
        nursery: trio.Nursery,
        manifest: Manifest,
        worker: SharedWorker,
        members: Sequence[Settings],
    ) -> list[MemoryMember]:
        """Start a node for each of the settings, and wait until all are connected."""
        nursery.start_soon(self._network.run)
        started: dict[int, NodeComponents] = {}
        for number, settings in enumerate(members):
            home = self._folder / f"n{number}"
            home.mkdir()
            save_manifest(home, manifest)
            starting = Node(
                identity=identity_of(settings.seed),
                settings=_settings_of(settings, home, number, len(members)),
                on_ready=partial(started.__setitem__, number),
                parts=self._parts(number, worker),
                socket=NoSocket,
            )
            nursery.start_soon(starting.run)
        while len(started) < len(members):
            await pass_time(self._clock, _TURN_S)
        found = [started[number] for number in range(len(members))]
        for index, node in enumerate(found):
            for other in found[:index]:
                nursery.start_soon(node.peer.host.dial, other.peer.host.listen_addrs()[0])
        await pass_time(self._clock, _MEETING_S)
        return [await MemoryMember.greeted(one) for one in found]

    async def end_turn(self, turns: int) -> None:
        """End one of a round's `turns`: batches shared in it arrive."""
        await pass_time(self._clock, max(_TURN_S, 1.0 / turns))

    def _parts(self, number: int, worker: SharedWorker) -> Dependencies:
        return simulated_parts(
            self._network,
            worker=lambda _families, _patience_s: _Worker(worker),
            wall_ms=wall_ms,
            rng=random.Random(f"{self._seed}/{number}/node"),
        )


def wall_ms() -> int:
    """Return the swarm's time, in milliseconds since 1970."""
    return _START_MS + int(1000 * trio.current_time())


def _settings_of(settings: Settings, home: Path, number: int, count: int) -> Settings:
    return settings.model_copy(
        update={
            "data_dir": home,
            "listen": (f"/ip4/10.0.{number // 250}.{1 + number % 250}/tcp/4001",),
            "bootstrap": (),
            "role": "observe",
            "mdns": False,
            "relay_client": "off",
            "archive_bytes": 0,
            "target_peers": count,
            # A node that never samples need not store.
            "subscribe_shards": settings.subscribe_shards if settings.external else "0",
        }
    )


class MemoryMember:
    """One node, as its trainer and the experiment know it."""

    def __init__(self, node: NodeComponents) -> None:
        self.node = node
        self._service: InspectorService = node.service
        self._waiting: list[m.Body] = []

    @classmethod
    async def greeted(cls, node: NodeComponents) -> MemoryMember:
        """Return the member of a node that has a trainer on its service."""
        member = cls(node)
        hello = m.Hello(ipc_version=m.IPC_VERSION, role=m.Role.TRAINER, pid=0)
        _fail_loudly(await member._service.hello(_HOLDER, hello))
        return member

    @property
    def peer_id(self) -> PeerId:
        """The node's."""
        return self.node.peer.peer_id

    def ask(self, body: m.Body) -> m.Body:
        """Return the answer to a request that waits for no disk."""
        return _fail_loudly(run_now(self._service.handle(_HOLDER, m.Role.TRAINER, body)))

    def tell(self, body: m.Body) -> None:
        """Queue a request for the end of the turn."""
        self._waiting.append(body)

    async def end_turn(self) -> None:
        """Pass the queued requests to the service."""
        waiting, self._waiting = self._waiting, []
        for body in waiting:
            _fail_loudly(await self._service.handle(_HOLDER, m.Role.TRAINER, body))


def _fail_loudly(answer: m.Body) -> m.Body:
    if isinstance(answer, m.Failure):
        raise RuntimeError(f"a node of the experiment refused its trainer: {answer.reason}")
    return answer


class MemoryLink(NodeLink):
    """The trainer's end of the link to a member in the same process: calls instead of messages.

    Every round is a checkpoint: nothing here survives the process, so nothing is reported twice.
    """

    def __init__(
        self,
        member: MemoryMember,
        behave: Callable[[m.Publish], m.Publish | None] = lambda batch: batch,
    ) -> None:
        """`behave` may change a shared batch, or withhold it."""
        super().__init__(None)
        self._member = member
        self._behave = behave

    @property
    def connected(self) -> bool:
        """Always."""
        return True

    @property
    def peer_id(self) -> PeerId:
        """The member's."""
        return self._member.peer_id

    def share(self, batch: m.Publish) -> None:
        """Have a batch signed and published when the turn ends."""
        changed = self._behave(batch)
        if changed is not None:
            self._member.tell(changed)

    def sample(self, count: int) -> tuple[PublishedGroup, ...]:
        """Lease up to `count` external groups."""
        answer = self._member.ask(m.Sample(num_external=count, lease_seconds=86_400.0))
        return answer.groups if isinstance(answer, m.SampleReply) else ()

    def hold_until_checkpoint(self, ids: Sequence[GroupId]) -> None:
        """Mark the groups as consumed."""
        self.end_leases(consumed=ids)

    def end_leases(
        self, *, consumed: Sequence[GroupId] = (), released: Sequence[GroupId] = ()
    ) -> Any:
        """End leases; consumption reaches the disk when the turn ends."""
        if consumed:
            self._member.tell(m.Report(consumed_ids=tuple(consumed)))
        if released:
            self._member.ask(m.Report(released_ids=tuple(released)))
        return True

    def report(self, reports: Sequence[m.GroupReport]) -> None:
        """Pass verification results to the node."""
        self._member.ask(m.Report(groups=tuple(reports)))

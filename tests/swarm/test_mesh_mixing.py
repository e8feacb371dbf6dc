"""Meshes of real routers over links in memory: two halves that were parted become one mesh."""

from __future__ import annotations

import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V12
from libp2p.pubsub.pb import rpc_pb2

from p2p.gossip.mixing import MIX_EVERY_S, MeshMixer
from p2p.gossip.outbound import OutboundQueue
from p2p.gossip.router import GossipRouter
from p2p.gossip.scorer import MeshSettings
from p2p.standing.scoring import Cause

TOPIC = "/shoal/test"
LATENCY_S = 0.05


@pytest.fixture(autouse=True)
def _back_offs_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library counts back-offs by the wall clock; here that is the simulation's."""
    clock = SimpleNamespace(time=lambda: 1e9 + trio.current_time())
    monkeypatch.setattr("libp2p.pubsub.gossipsub.time", clock)
    monkeypatch.setattr("p2p.gossip.router.time", clock)


def rpc_of(frame: bytes) -> rpc_pb2.RPC:
    """Undo `encode_frame`."""
    start = next(i for i in range(len(frame)) if frame[i] < 0x80) + 1
    return rpc_pb2.RPC.FromString(frame[start:])


class Member:
    """A router, and of pubsub only what it asks of it."""

    def __init__(self, name: str) -> None:
        self.id = ID(name.encode())
        self.charged: list[Cause] = []
        self.router = GossipRouter(
            MeshSettings(),
            score=lambda _peer: 0.0,
            charge=lambda _peer, cause: self.charged.append(cause),
        )
        self.router.mesh[TOPIC] = set()
        self.pubsub = SimpleNamespace(
            peers={}, peer_topics={TOPIC: set()}, peer_queues={}, knows=lambda _id: True
        )
        self.router.pubsub = cast("Any", self.pubsub)

    @property
    def mesh(self) -> set[ID]:
        return cast("set[ID]", self.router.mesh[TOPIC])


class Swarm:
    """Members whose control messages travel by `nursery`."""

    def __init__(self, nursery: trio.Nursery, names: Iterable[str]) -> None:
        self._nursery = nursery
        self.members = {m.id: m for m in map(Member, names)}
        for member in self.members.values():
            nursery.start_soon(member.router.heartbeat)

    def __getitem__(self, name: str) -> Member:
        return self.members[ID(name.encode())]

    async def connect(self, one: Member, other: Member) -> None:
        for here, there in ((one, other), (other, one)):
            queue = OutboundQueue(max_frames=64, max_bytes=1 << 20)
            here.pubsub.peers[there.id] = object()
            here.pubsub.peer_queues[there.id] = queue
            here.pubsub.peer_topics[TOPIC].add(there.id)
            here.router.peer_protocol[there.id] = PROTOCOL_ID_V12
            self._nursery.start_soon(self._carry, queue, here, there)
        for here, there in ((one, other), (other, one)):
            await here.router.on_peer_subscribed(there.id, TOPIC)

    async def _carry(self, queue: OutboundQueue, source: Member, sink: Member) -> None:
        while (frame := await queue.pop_frame()) is not None:
            await trio.sleep(LATENCY_S)
            await sink.router.handle_rpc(rpc_of(frame), source.id)

    async def join(self, names: Iterable[str], others: Iterable[str]) -> None:
        others = list(others)
        for name in names:
            for other in others:
                if other != name and self[other].id not in self[name].pubsub.peers:
                    await self.connect(self[name], self[other])

    def crossing(self, names: Iterable[str], across: Iterable[str]) -> list[str]:
        """Return who of `names` has somebody of `across` in its mesh."""
        far = {self[name].id for name in across}
        return [name for name in names if self[name].mesh & far]


@pytest.mark.parametrize("size", [4, 6, 12])
async def test_halves_that_meet_again_become_one_mesh(
    size: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Five times over: in one of sixty swarms of four and four somebody has to wait longer."""
    random.seed(size)
    linked = [await linked_again(size) for _ in range(5)]
    assert sum(linked) >= 0.95 * 5 * 2 * size, linked


async def linked_again(size: int) -> int:
    """Part two halves, let them meet, and return how many have one of the other in their mesh."""
    left, right = ([f"{side}{n}" for n in range(size)] for side in "lr")
    async with trio.open_nursery() as nursery:
        swarm = Swarm(nursery, [*left, *right, "meeting"])
        # As after a minute apart: each half full of its own, and one side with the bootstrap.
        await swarm.join([*left], left)
        await swarm.join([*right, "meeting"], [*right, "meeting"])
        await trio.sleep(60)
        assert not swarm.crossing(left, right)
        await swarm.join(left, [*right, "meeting"])
        await trio.sleep(1.5 * MIX_EVERY_S + 2)
        linked = len(swarm.crossing(left, right)) + len(swarm.crossing(right, left))
        nursery.cancel_scope.cancel()
    return linked


async def test_mixing_keeps_meshes_at_their_size_and_offends_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    random.seed(1)
    names = [f"n{n}" for n in range(24)]
    async with trio.open_nursery() as nursery:
        swarm = Swarm(nursery, names)
        await swarm.join(names, names)
        await trio.sleep(5)
        before = {name: set(swarm[name].mesh) for name in names}
        await trio.sleep(300)
        sizes = [len(swarm[name].mesh) for name in names]
        # Who has just been left is short of one until its next heartbeats.
        recovered = sizes
        for _ in range(3):
            await trio.sleep(1)
            recovered = [
                max(n, len(swarm[name].mesh)) for n, name in zip(recovered, names, strict=True)
            ]
        assert min(recovered) >= MeshSettings().degree_low
        assert max(sizes) <= MeshSettings().degree_high
        assert sum(sizes) / len(sizes) < MeshSettings().degree + 1
        assert any(swarm[name].mesh != before[name] for name in names)
        assert not [cause for name in names for cause in swarm[name].charged]
        nursery.cancel_scope.cancel()


def test_a_newcomer_is_due_once_in_a_while_and_then_until_one_comes() -> None:
    mixer = MeshMixer(random.Random(3), every_s=10)
    assert not mixer.is_due(TOPIC, 0)
    assert not mixer.is_due(TOPIC, 4.9)
    assert mixer.is_due(TOPIC, 15)
    assert mixer.is_due(TOPIC, 16)
    mixer.mixed(TOPIC, 16)
    assert not mixer.is_due(TOPIC, 20.9)
    mixer.keep_only([])
    assert not mixer.is_due(TOPIC, 100)


async def test_the_first_graft_that_may_have_crossed_a_prune_is_excused_the_second_is_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        swarm = Swarm(nursery, ["a", "b"])
        await swarm.join(["a", "b"], ["a", "b"])
        await trio.sleep(5)
        a, b = swarm["a"], swarm["b"]
        graft = rpc_pb2.ControlGraft(topicID=TOPIC)
        a.router._add_back_off(b.id, TOPIC, False)
        await a.router.handle_graft(graft, b.id)
        assert a.charged == []
        await a.router.handle_graft(graft, b.id)
        assert a.charged == [Cause.BROKEN_BACKOFF]
        nursery.cancel_scope.cancel()

"""Hosts with gossip that record received messages, for any implementation of either."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from shoal_p2p.gossip.interface import Gossip
from shoal_p2p.net.interface import Host
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Reason, Verdict
from tests.support.nodes import Delivery, RecordingWatch, until


async def accept(_data: bytes) -> Verdict:
    """Accept every message."""
    await trio.lowlevel.checkpoint()
    return ACCEPT


@dataclass(slots=True, kw_only=True)
class Talker:
    """A host with gossip that records messages and returns the test's verdict."""

    host: Host
    gossip: Gossip
    watch: RecordingWatch
    judge: Callable[[bytes], Awaitable[Verdict]] = accept
    deliveries: list[Delivery] = field(default_factory=list)
    """Every call of its validator."""

    @property
    def peer_id(self) -> PeerId:
        """Its peer id."""
        return self.host.peer_id

    @property
    def received(self) -> list[bytes]:
        """The arguments of its validator, in order."""
        return [delivery.data for delivery in self.deliveries]

    @property
    def reasons(self) -> list[Reason]:
        """The verdicts reported to its watch, in order."""
        return [judged.reason for _, _, judged in self.watch.verdicts]

    async def join(self, topic: str) -> None:
        """Subscribe to `topic`."""
        await self.gossip.subscribe(topic, self._validate)

    async def say(self, topic: str, data: bytes) -> int:
        """Publish `data`."""
        return await self.gossip.publish(topic, data)

    async def dial(self, other: Talker) -> None:
        """Connect to `other`, and wait until both report it."""
        await connect(self.host, other.host)

    def members(self, topic: str) -> set[PeerId]:
        """Return the members of its mesh."""
        return {member.peer_id for member in self.gossip.mesh().get(topic, [])}

    def count(self, name: str) -> int:
        """Return one of its counters."""
        return self.gossip.stats().pubsub.get(name, 0)

    async def _validate(self, data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        self.deliveries.append(Delivery(data=data, author=author, forwarder=forwarder))
        return await self.judge(data)


async def connect(one: Host, other: Host) -> None:
    """Let `one` dial `other`, and wait until both report it."""
    await one.dial(other.listen_addrs()[0])
    await until(lambda: one.is_connected(other.peer_id) and other.is_connected(one.peer_id))


async def mesh(topic: str, *talkers: Talker) -> None:
    """Let connected hosts join `topic`, and wait until they are in each other's meshes."""
    for talker in talkers:
        await talker.join(topic)
    all_ids = {talker.peer_id for talker in talkers}

    def is_meshed(talker: Talker) -> bool:
        near = talker.host.connected_peers() & all_ids
        return near <= talker.members(topic)

    await until(lambda: all(map(is_meshed, talkers)))

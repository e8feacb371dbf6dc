"""A peer that answers `/shoal/rollouts/1` with whatever a test likes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from shoal_p2p.gossip.gossip import Libp2pGossip
from shoal_p2p.net.host import HostSettings, Libp2pHost
from shoal_wire.limits import MAX_REQUEST_BYTES, ROLLOUTS_PROTOCOL
from shoal_wire.manifest import Manifest
from shoal_wire.rollout_codec import decode_query, encode_answer
from shoal_wire.rollout_messages import Answer, BatchRef, Query
from shoal_wire.types import PeerId, SignedBatch
from shoal_wire.verdict import ACCEPT, Verdict
from tests.support import factories as make
from tests.support.doubles.gossip import RecordingWatch
from tests.support.local_node import wall_ms
from tests.support.nodes import LOOPBACK, until

Answerer = Callable[[Query], Awaitable[Answer | bytes]]


class FalseProvider:
    """A gossiping peer with an identity, batches of its own, and answers of the test's making."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.author = make.Author(manifest, now_ms=wall_ms())
        self.host = Libp2pHost(
            identity=self.author.identity, settings=HostSettings(listen=(LOOPBACK,))
        )
        self.gossip = Libp2pGossip(host=self.host, watch=RecordingWatch())
        self.asked: list[Query] = []

    @property
    def peer_id(self) -> PeerId:
        """Its peer id."""
        return self.host.peer_id

    @property
    def topic(self) -> str:
        """Where it publishes."""
        return self.manifest.topic(self.manifest.shard_of(self.peer_id))

    async def listen(self) -> None:
        """Be subscribed, as a peer in the mesh is."""

        async def accept(_data: bytes, _author: PeerId, _forwarder: PeerId) -> Verdict:
            return ACCEPT

        for topic in self.manifest.topics():
            await self.gossip.subscribe(topic, accept)

    async def meet(self, address: str, peer_id: PeerId) -> None:
        """Connect to a node and get into its mesh."""
        await self.host.dial(address)
        await until(
            lambda: any(m.peer_id == peer_id for m in self.gossip.mesh().get(self.topic, ()))
        )

    def answer(self, answerer: Answerer) -> None:
        """Answer requests by `answerer`; bytes go out as they are."""

        async def handle(_peer: PeerId, raw: bytes) -> bytes:
            query = decode_query(raw)
            self.asked.append(query)
            answer = await answerer(query)
            return answer if isinstance(answer, bytes) else encode_answer(answer)

        self.host.set_request_handler(
            ROLLOUTS_PROTOCOL, handle, max_request_bytes=MAX_REQUEST_BYTES
        )

    def announcement(self, envelope: bytes, **changes: object) -> bytes:
        """Return an announcement of `envelope` under the author's next number."""
        self.author.sequence += 1
        self.author.now_ms = wall_ms()
        return self.author.announcement(envelope, **changes)

    async def announce(self, envelope: bytes, **changes: object) -> None:
        """Gossip an announcement of `envelope`."""
        await self.gossip.publish(self.topic, self.announcement(envelope, **changes))


def ref_of(signed: SignedBatch) -> BatchRef:
    """Return how a listing names a batch."""
    return BatchRef(
        batch_id=signed.batch_id,
        publisher=signed.publisher,
        sequence=signed.batch.sequence,
        num_bytes=len(signed.envelope),
        num_groups=len(signed.batch.groups),
    )


@asynccontextmanager
async def open_false_provider(manifest: Manifest) -> AsyncIterator[FalseProvider]:
    """Run one."""
    import trio

    provider = FalseProvider(manifest)
    async with trio.open_nursery() as nursery:
        await nursery.start(provider.host.run)
        await provider.listen()
        try:
            yield provider
        finally:
            with trio.CancelScope(shield=True):
                await provider.host.close()

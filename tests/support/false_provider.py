"""A peer that answers `/shoal/rollouts/1` as a test defines.

async with open_three(tmp_path) as (victim, honest, false):
    false.gives([envelope], listed)
    await false.host.dial(victim.address)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from shoal_p2p.fetch.exchange import ExchangeSettings
from shoal_p2p.gossip.gossip import Libp2pGossip
from shoal_p2p.net.host import HostSettings, Libp2pHost
from shoal_wire.digests import batch_id
from shoal_wire.limits import MAX_REQUEST_BYTES, ROLLOUTS_PROTOCOL
from shoal_wire.manifest import Manifest
from shoal_wire.rollout_codec import decode_query, encode_answer
from shoal_wire.rollout_messages import Answer, BatchRef, Query, SinceQuery
from shoal_wire.types import PeerId
from shoal_wire.verdict import ACCEPT, Verdict
from tests.support import factories as make
from tests.support.doubles.gossip import RecordingWatch
from tests.support.exchange_nodes import NO_BACKFILL, ExchangeNode, open_node
from tests.support.local_node import wall_ms
from tests.support.nodes import LOOPBACK, running, until
from tests.support.rollout_answers import answer_from

Answerer = Callable[[Query], Answer | bytes | None]
"""Returns the reply to a request: bytes are sent unchanged, and for None no reply is sent."""


class FalseProvider:
    """A gossiping peer with an identity, its own batches, and replies defined by the test."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.author = make.Author(manifest, now_ms=wall_ms())
        self.host = Libp2pHost(
            identity=self.author.identity, settings=HostSettings(listen=(LOOPBACK,))
        )
        self.gossip = Libp2pGossip(host=self.host, scorer=RecordingWatch())
        self.queries: list[Query] = []
        self._listed: Sequence[BatchRef] = ()

    @property
    def peer_id(self) -> PeerId:
        """Its peer id."""
        return self.host.peer_id

    @property
    def topic(self) -> str:
        """The topic on which it publishes."""
        return self.manifest.topic(self.manifest.shard_of(self.peer_id))

    async def listen(self) -> None:
        """Subscribe, as a peer in the mesh does."""

        async def accept(_data: bytes, _author: PeerId, _forwarder: PeerId) -> Verdict:
            return ACCEPT

        for topic in self.manifest.topics():
            await self.gossip.subscribe(topic, accept)

    async def meet(self, address: str, peer_id: PeerId) -> None:
        """Connect to a node and join its mesh."""
        await self.host.dial(address)
        await until(
            lambda: any(m.peer_id == peer_id for m in self.gossip.mesh().get(self.topic, ()))
        )

    def answer(self, answerer: Answerer) -> None:
        """Answer requests by `answerer`."""

        async def handle(peer: PeerId, raw: bytes) -> bytes:
            query = decode_query(raw)
            if isinstance(query, SinceQuery) and query.publisher == peer:
                # Every node asks for batches under its own name, whatever a test is about.
                return encode_answer(answer_from(query, {}, self._listed))
            self.queries.append(query)
            answer = answerer(query)
            if answer is None:
                await trio.sleep_forever()
                raise AssertionError("unreachable")
            return answer if isinstance(answer, bytes) else encode_answer(answer)

        self.host.set_request_handler(
            ROLLOUTS_PROTOCOL, handle, max_request_bytes=MAX_REQUEST_BYTES
        )

    def gives(self, envelopes: Sequence[bytes], listed: Sequence[BatchRef] = ()) -> None:
        """List these batches to every requester, and return these envelopes."""
        held = {batch_id(envelope): envelope for envelope in envelopes}
        self._listed = listed
        self.answer(lambda query: answer_from(query, held, listed))

    def announcement(self, envelope: bytes, **changes: object) -> bytes:
        """Return an announcement of `envelope` under the author's next sequence number."""
        self.author.sequence += 1
        self.author.now_ms = wall_ms()
        return self.author.announcement(envelope, **changes)

    async def announce(self, envelope: bytes, **changes: object) -> None:
        """Gossip an announcement of `envelope`."""
        await self.gossip.publish(self.topic, self.announcement(envelope, **changes))


@asynccontextmanager
async def open_false_provider(manifest: Manifest) -> AsyncIterator[FalseProvider]:
    """Run one."""
    provider = FalseProvider(manifest)
    async with running(provider.host):
        await provider.listen()
        yield provider


@asynccontextmanager
async def open_three(
    folder: Path, settings: ExchangeSettings = NO_BACKFILL
) -> AsyncIterator[tuple[ExchangeNode, ExchangeNode, FalseProvider]]:
    """Run a node under test, an honest node and a false provider, not yet connected."""
    manifest = make.swarm(max_batch_bytes=4 << 20)
    async with (
        open_node(folder / "victim", manifest, settings=settings) as victim,
        open_node(folder / "honest", manifest, settings=NO_BACKFILL) as honest,
        open_false_provider(manifest) as false,
    ):
        yield victim, honest, false

"""One attacker: its own host on the simulated network, and arbitrary bytes on any stream."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio
from google.protobuf.message import DecodeError
from libp2p.host.exceptions import HostException
from libp2p.io.exceptions import IOException
from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.gossip.codec import encode_frame, message_id
from shoal_p2p.net.address import to_libp2p_id
from shoal_p2p.net.host import DialError
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.net.request import RequestError, RequestLimits
from shoal_p2p.net.streams import FrameReader, MalformedFrameError
from shoal_wire.digests import batch_id
from shoal_wire.limits import MAX_ANSWER_BYTES
from shoal_wire.types import BatchId, PeerId
from tests.support import factories as make
from tests.support.simulated_streams import Stream
from tests.support.streamed_host import StreamedHost

if TYPE_CHECKING:
    from tests.support.simulated_swarm import World

MESHSUB = ("/meshsub/1.2.0", "/meshsub/1.1.0", "/meshsub/1.0.0")
BROKEN = (HostException, IOException, EOFError, DialError, RequestError, MalformedFrameError)
"""Exceptions of streams, dials and requests, which an attacker ignores."""
_KEPT = 300
_PATIENCE_S = 3.0

Answer = Callable[[PeerId, bytes], Awaitable[bytes]]


@dataclass(slots=True, eq=False)
class Captured:
    """What the attackers of one schedule have received, shared by all of them."""

    messages: deque[rpc_pb2.Message] = field(default_factory=lambda: deque(maxlen=_KEPT))
    ids: deque[bytes] = field(default_factory=lambda: deque(maxlen=_KEPT))
    shown: dict[BatchId, bytes] = field(default_factory=dict)
    """Envelopes to return to requests for their ids."""

    def keep(self, rpc: rpc_pb2.RPC, own: set[bytes]) -> None:
        """Store what an honest peer sent."""
        for message in rpc.publish:
            if message.from_id not in own:
                self.messages.append(message)
                self.ids.append(message_id(message))
        for offer in rpc.control.ihave:
            self.ids.extend(offer.messageIDs[:50])


class AttackerPeer:
    """One attacker. Start with ``await nursery.start(attacker.run)``."""

    def __init__(self, world: World, captured: Captured, name: str, address: str) -> None:
        self.world, self.captured = world, captured
        rng = random.Random(f"{world.seed}/{name}")
        self.identity = identity_from_seed(rng.randbytes(32))
        self.host = StreamedHost(world.network, self.identity, address, max_connections=10_000)
        self.author = make.Author(world.manifest, identity=self.identity)
        self.is_deaf = False
        """True if it reads nothing that it receives."""
        self._streams: dict[PeerId, Stream] = {}
        for protocol in MESHSUB:
            self.host.handlers[protocol] = self._listen

    @property
    def peer_id(self) -> PeerId:
        """Its current name."""
        return self.identity.peer_id

    async def run(self, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        """Be on the network until cancelled or closed."""
        await self.host.run(task_status=task_status)

    def own(self, author: make.Author | None = None) -> make.Author:
        """Return an author, by default itself, with the current time."""
        author = author or self.author
        author.now_ms = self.world.wall_ms()
        return author

    def register(self, raw: bytes, author: make.Author) -> bytes:
        """Record that `author` signed this, so accepting it as theirs is not a fault."""
        self.world.valid[batch_id(raw)] = author.peer_id
        self.captured.shown[batch_id(raw)] = raw
        return raw

    # Targets

    def targets(self, rng: random.Random) -> list[PeerId]:
        """Return all, one or a few of the honest peers that it is connected to."""
        peers = sorted(self.host.connected_peers())
        if not peers:
            return []
        return rng.sample(peers, rng.choice((1, len(peers), rng.randint(1, len(peers)))))

    async def meet(self, rng: random.Random) -> None:
        """Dial the honest peers that are not connected."""
        honest = list(self.world.up("honest", "bootstrap"))
        for node in rng.sample(honest, len(honest)):
            if node.peer_id not in self.host.connected_peers():
                host = self.world.network.host(node.peer_id)
                if host is not None:
                    with suppress(*BROKEN):
                        await self.host.dial(f"{host.address}/p2p/{node.peer_id}", timeout=1.0)

    # Gossip streams

    async def _listen(self, stream: Stream) -> None:
        frames = FrameReader(stream, 1 << 21)
        own = {self.identity_bytes}
        while True:
            if self.is_deaf:
                await trio.sleep_forever()
            rpc = rpc_pb2.RPC()
            with suppress(DecodeError):
                rpc.ParseFromString(await frames.read())
            self.captured.keep(rpc, own)

    @property
    def identity_bytes(self) -> bytes:
        """Its peer id as bytes, as used in gossip."""
        return bytes(to_libp2p_id(self.peer_id).to_bytes())

    async def say(self, targets: Iterable[PeerId], *rpcs: rpc_pb2.RPC) -> None:
        """Send RPCs, whole and in order, over the gossip stream to each target."""
        frames = b"".join(map(encode_frame, rpcs))
        for target in targets:
            await self.write(target, frames)

    async def write(self, target: PeerId, data: bytes, *, reconnect: bool = False) -> None:
        """Write any bytes on the gossip stream, or on a new one that replaces it."""
        with trio.move_on_after(_PATIENCE_S):
            try:
                stream = self._streams.get(target)
                if stream is None or reconnect:
                    stream = await self.host.open(target, MESHSUB)
                    self._streams[target] = stream
                await stream.write(data)
            except BROKEN:
                self._streams.pop(target, None)

    # Request streams

    async def ask(self, target: PeerId, protocol: str, payload: bytes) -> None:
        """Send a request as an honest peer would, and ignore the reply."""
        with suppress(*BROKEN):
            await self.host.request(
                target, protocol, payload, max_response_bytes=MAX_ANSWER_BYTES, timeout=_PATIENCE_S
            )

    async def write_slowly(
        self, target: PeerId, protocol: str, pieces: list[bytes], wait_s: float
    ) -> None:
        """Write pieces on a request stream slowly, and leave it open for a while."""
        with suppress(*BROKEN), trio.move_on_after(30.0):
            stream = await self.host.open(target, [protocol])
            for piece in pieces:
                await stream.write(piece)
                await trio.sleep(wait_s)
            await trio.sleep(10 * wait_s)
            await stream.reset()

    def serve(self, protocol: str, answer: Answer) -> None:
        """Serve a protocol from now on, without limits."""
        self.host.set_request_handler(
            protocol,
            answer,
            max_request_bytes=1 << 20,
            limits=RequestLimits(max_concurrent=512, max_concurrent_per_peer=512),
        )

"""The mesh over py-libp2p's streams; `interface.Gossip` has the contract.

    their stream ──▶ reader: paused, decoded, slots ──▶ Mesh.receive ──▶ validators
    our stream   ◀── writer ◀── OutboundQueue ◀── Send, Forward ◀── Mesh

Of py-libp2p only hosts and streams are used. For each peer there is one reader and one writer:

* whatever a peer's bytes raise resets its stream and is charged;
* a peer that sends faster, or mostly what brings nothing, is read more slowly, and TCP holds it
  back; so is one of which as much is being judged as may be;
* the queue towards a peer is bounded, and a failed write ends the connection, so that both ends
  start again from nothing.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from google.protobuf.message import DecodeError

from shoal_base.waits import RETRY_S
from shoal_p2p.gossip.codec import MAX_RPC_BYTES, decode, encode, message_of, pack
from shoal_p2p.gossip.driver import MeshGossip
from shoal_p2p.gossip.interface import PeerScorer
from shoal_p2p.gossip.mesh import MESSAGE_BYTES
from shoal_p2p.gossip.messages import fault_of, sign_message
from shoal_p2p.gossip.offers import BEHIND_S
from shoal_p2p.gossip.outbound import OutboundQueue, usual_wait_s
from shoal_p2p.gossip.rpc import MessageReceived, Rpc
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.net.address import bytes_of_peer_id
from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.net.inbound_gate import prefix_of
from shoal_p2p.net.layers import remote_end
from shoal_p2p.net.streams import (
    AnyStreamError,
    FrameReader,
    MalformedFrameError,
    Stream,
    below,
    log_failure,
    reset_stream,
    wait_for_end,
)
from shoal_p2p.net.windows import MAX_BODY_BYTES
from shoal_p2p.net.yamux import abort
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

_WITH_IDONTWANT = "/meshsub/1.2.0"
PROTOCOLS = (_WITH_IDONTWANT, "/meshsub/1.1.0", "/meshsub/1.0.0")
"""Versions of gossipsub, the preferred one first."""

_RETRY_S, _LONGEST_RETRY_S = 0.25, 5.0
"""Waits between tries to open a stream to a peer that is connected: doubled each time."""


class Libp2pGossip(MeshGossip):
    """Create before the host runs; it attaches itself to the host."""

    def __init__(
        self,
        *,
        host: Libp2pHost,
        watch: PeerScorer,
        settings: GossipSettings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        settings = settings or GossipSettings()
        limits = self._limits = settings.limits
        super().__init__(
            host.peer_id,
            watch=watch,
            settings=settings,
            fault_of=lambda message: fault_of(message.signed, limits.max_message_bytes),
            pack=pack,
            source_of=host.source_of,
            rng=rng or random.Random(),
        )
        self._host = host
        self._own_id = bytes_of_peer_id(host.peer_id)
        self._number = 0
        self._queues: dict[PeerId, OutboundQueue] = {}
        """Outbound queues, one for each peer to which this node has a stream open."""
        self._talking: set[PeerId] = set()
        self._inbound: dict[PeerId, Stream] = {}
        self._nursery: trio.Nursery | None = None
        for protocol in PROTOCOLS:
            host.serve_streams(protocol, self._serve)
        host.add_peer_callbacks(connected=self._meet)
        host.attach_service(self.run)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Beat until cancelled; `task_status` is told once peers may come."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                self._beat(peer for peer, queue in self._queues.items() if queue.num_data_bytes)
                await trio.sleep(self._settings.mesh.heartbeat_s)

    async def publish(self, topic: str, data: bytes) -> int:
        """Publish data; see `Gossip`. Waits for room in full queues up to the settings' deadline,
        and leaves out peers that are still full then.
        """
        self._refuse_oversize(data)
        await trio.lowlevel.checkpoint()
        size = len(data) + MESSAGE_BYTES
        queues = [self._queues.get(peer) for peer in self._mesh.targets(topic)]
        full = [queue for queue in queues if queue is not None and not queue.has_room(size)]
        if full:
            with trio.move_on_after(self._settings.publish_deadline_s):
                async with trio.open_nursery() as nursery:
                    for queue in full:
                        nursery.start_soon(queue.wait_for_room, size)
        # From the clock, so that no number is used again after a restart.
        self._number = max(self._number + 1, time.time_ns())
        signed = sign_message(self._host.identity, self._own_id, topic, data, self._number)
        sent = self._mesh.publish(message_of(signed), trio.current_time())
        num_queued = self._perform((sent,))
        self._mesh.counts["publish_skipped"] += len(sent.peers) - num_queued
        return num_queued

    def late_s(self, sent_since: float = -math.inf) -> float | None:
        """Return how many seconds late messages arrive, or wait for most peers, if that is more.

        Whoever neither reads nor speaks is no measure of how late others are.
        """
        now = trio.current_time()
        waits = [
            (queue.waited_s(now), self._host.silent_s(peer)) for peer, queue in self._queues.items()
        ]
        arriving, waiting = super().late_s(sent_since), usual_wait_s(waits)
        return arriving if not waiting else max(arriving or 0.0, waiting)

    def _send(self, peer: PeerId, rpc: Rpc) -> None:
        queue = self._queues.get(peer)
        is_sent = queue is None or queue.push(encode(rpc), control=True)
        if not is_sent and (rpc.subscriptions or rpc.graft or rpc.prune):
            # The two ends would disagree about the mesh: both have to start from nothing.
            logger.info("%s reads no control messages: its connection is cut", peer)
            self._host.abort(peer)

    def _push(self, peer: PeerId, frame: bytes) -> bool:
        queue = self._queues.get(peer)
        return queue is not None and queue.push(frame)

    def _spawn(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        if self._nursery is None:
            raise RuntimeError("gossip does not run")
        self._nursery.start_soon(task, *arguments)

    # Their stream

    async def _serve(self, peer: PeerId, stream: Stream) -> None:
        """Read one inbound stream to its end. Raises nothing but cancellation."""
        previous = self._inbound.get(peer)
        self._inbound[peer] = stream
        self._mesh.reads(peer, prefix_of(remote_end(stream)[0]))
        if previous is not None:
            await reset_stream(previous)
        try:
            await self._read_all(stream, peer)
        except (MalformedFrameError, DecodeError, UnicodeDecodeError) as error:
            # The text of proto2 messages is not checked when they are parsed.
            self._mesh.counts["malformed_rpc"] += 1
            logger.info("malformed pubsub RPC from %s: %s", peer, error)
            self._watch.on_behaviour(peer, Cause.MALFORMED_RPC)
        except AnyStreamError as error:
            logger.debug("pubsub stream of %s ended: %r", peer, error)
        except Exception:  # a peer's bytes reach library code that raises any type
            self._mesh.counts["fault"] += 1
            logger.exception("pubsub stream of %s failed", peer)
        finally:
            if self._inbound.get(peer) is stream:
                del self._inbound[peer]
                self._mesh.unreads(peer)
            await reset_stream(stream)

    async def _read_all(self, stream: Stream, peer: PeerId) -> None:
        frames = FrameReader(below(stream), MAX_RPC_BYTES)
        slots = trio.Semaphore(self._limits.max_validating_per_peer)
        while True:
            await self._hold_back(peer)
            raw = await frames.read()
            if self._mesh.ignores(peer):
                await trio.sleep(RETRY_S)
                continue
            is_first = True
            for part in decode(raw, self._limits):
                if not is_first:
                    await trio.lowlevel.checkpoint()
                is_first = False
                await self._take(peer, part, slots)

    async def _hold_back(self, peer: PeerId) -> None:
        """Leave a peer unread that has sent too much; its own fault is charged by the second."""
        while (pause := self._mesh.pause(peer, trio.current_time())) is not None:
            await trio.sleep(pause.seconds)
            self._perform(self._mesh.paused(peer, pause, trio.current_time()))

    async def _take(self, peer: PeerId, rpc: Rpc, slots: trio.Semaphore) -> None:
        for event in self._mesh.receive(peer, rpc, trio.current_time()):
            if not isinstance(event, MessageReceived):
                self._perform((event,))
                continue
            await self._take_slot(slots, peer)
            self._admit(peer, event.message, slots.release)

    async def _take_slot(self, slots: trio.Semaphore, peer: PeerId) -> None:
        """Take a slot; the mesh learns again and again that the peer is not read meanwhile."""
        if slots.value == self._limits.max_validating_per_peer:
            slots.acquire_nowait()
            return
        while slots.value == 0:
            asked_at = trio.current_time()
            with trio.move_on_after(BEHIND_S) as pause:
                await slots.acquire()
            now = trio.current_time()
            self._mesh.on_read_paused(peer, now - asked_at, now)
            if not pause.cancelled_caught:
                return
        # Others have a turn: what was taken is paid for before more is read.
        await slots.acquire()

    # Our stream

    def _meet(self, peer: PeerId) -> None:
        if peer not in self._talking and self._nursery is not None:
            self._talking.add(peer)
            self._nursery.start_soon(self._talk_to, peer)

    async def _talk_to(self, peer: PeerId) -> None:
        """Keep a stream open to a peer for as long as the host, which called `_meet`, has it.

        Its connection may be on the way down while another comes: then the next try succeeds.
        """
        wait_s = _RETRY_S
        try:
            while self._host.is_connected(peer):
                try:
                    with trio.fail_after(self._limits.stream_deadline_s):
                        stream = await self._host.open_stream(peer, *PROTOCOLS)
                except Exception as error:  # noqa: BLE001 - any failure means: try again later
                    logger.debug("no pubsub stream to %s yet: %r", peer, error)
                    wait_s = min(2 * wait_s, _LONGEST_RETRY_S)
                else:
                    await self._talk_over(stream, peer)
                    wait_s = _RETRY_S
                await trio.sleep(wait_s)
        finally:
            self._talking.discard(peer)

    async def _talk_over(self, stream: Stream, peer: PeerId) -> None:
        """Write what is for a peer until the stream ends."""
        limits = self._limits
        queue = OutboundQueue(
            max_frames=limits.max_queue_frames,
            max_bytes=limits.max_queue_bytes,
            write_now=partial(_write_now, stream),
        )
        self._queues[peer] = queue
        knows_idontwant = stream.get_protocol() == _WITH_IDONTWANT
        now = trio.current_time()
        try:
            is_dialled = self._host.is_dialled(peer)
            self._perform(
                self._mesh.opened(peer, now, knows_idontwant=knows_idontwant, is_dialled=is_dialled)
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_close_with, queue, stream)
                await self._write_all(stream, peer, queue)
                nursery.cancel_scope.cancel()
        finally:
            queue.close()
            del self._queues[peer]
            self._mesh.closed(peer)
            await reset_stream(stream)

    async def _write_all(self, stream: Stream, peer: PeerId, queue: OutboundQueue) -> None:
        """The stream's only writer. A failed write ends the connection it was made on."""
        frames: list[bytes] = []
        try:
            while frames := await queue.pop(MAX_BODY_BYTES):
                with trio.fail_after(self._limits.write_deadline_s):
                    await below(stream).write(b"".join(frames))
        except Exception as error:  # noqa: BLE001 - whatever a broken stream raises
            log_failure("sending to", peer, error)
            if len(queue) or len(frames) > 1:
                self._watch.on_behaviour(peer, Cause.SLOW_READER)
            abort(stream)


def _write_now(stream: Stream, frame: bytes) -> bool:
    try:
        return below(stream).write_now(frame)
    except AnyStreamError:  # the writer meets it, too, and ends the connection
        return False


async def _close_with(queue: OutboundQueue, stream: Stream) -> None:
    """Close the queue when the connection of its stream ends."""
    await wait_for_end(stream)
    queue.close()

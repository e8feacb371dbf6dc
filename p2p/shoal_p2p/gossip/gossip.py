"""Gossip over py-libp2p streams. `interface.Gossip` is the contract.

    inbound stream  ──▶ reader: pauses, decoding, slots ──▶ Mesh.receive ──▶ validators
    outbound stream ◀── writer ◀── OutboundQueue ◀── SendRpc, Forward ◀── Mesh

Only the hosts and streams of py-libp2p are used. Each peer has one reader and one writer:

* an exception caused by a peer's bytes resets its stream and is charged to the peer;
* a peer that sends too fast, or mostly waste, is read more slowly, and TCP slows it down; so is a
  peer with the maximum number of messages under validation;
* the queue to each peer is limited, and a failed write closes the connection, so that both ends
  start again from an empty state.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from google.protobuf.message import DecodeError

from shoal_base.waits import RETRY_S
from shoal_p2p.gossip.codec import (
    MAX_RPC_BYTES,
    decode,
    encode,
    pack,
    reject_reason,
    sign_message,
    to_message,
)
from shoal_p2p.gossip.driver import MeshGossip
from shoal_p2p.gossip.ihave import READ_BEHIND_S
from shoal_p2p.gossip.interface import PeerScorer
from shoal_p2p.gossip.mesh import MESSAGE_OVERHEAD_BYTES
from shoal_p2p.gossip.outbound import OutboundQueue, median_wait_s
from shoal_p2p.gossip.rpc import Message, MessageReceived, Rpc
from shoal_p2p.gossip.sequence_numbers import SequenceNumbers
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.net.address import bytes_of_peer_id
from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.net.inbound_gate import prefix_of
from shoal_p2p.net.layers import remote_endpoint
from shoal_p2p.net.streams import (
    AnyStreamError,
    FrameReader,
    MalformedFrameError,
    Stream,
    log_failure,
    muxed_stream,
    reset_stream,
    wait_for_end,
)
from shoal_p2p.net.windows import MAX_BODY_BYTES, WindowedStream
from shoal_p2p.net.yamux import abort
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

_WITH_IDONTWANT = "/meshsub/1.2.0"
PROTOCOLS = (_WITH_IDONTWANT, "/meshsub/1.1.0", "/meshsub/1.0.0")
"""Versions of gossipsub, the preferred one first."""

_RETRY_S, _LONGEST_RETRY_S = 0.25, 5.0
"""Waits between attempts to open a stream to a connected peer, in seconds, doubled each time."""


class Libp2pGossip(MeshGossip):
    """Gossip over a libp2p host. Create it before the host runs; it attaches itself."""

    def __init__(
        self,
        *,
        host: Libp2pHost,
        scorer: PeerScorer,
        settings: GossipSettings | None = None,
        rng: random.Random | None = None,
        numbers: SequenceNumbers | None = None,
    ) -> None:
        """`numbers` are the messages' sequence numbers; the default forgets them at its end."""
        settings = settings or GossipSettings()
        self._limits = settings.limits
        super().__init__(
            host.peer_id,
            scorer=scorer,
            settings=settings,
            rng=rng or random.Random(),
        )
        self._host = host
        self._own_id = bytes_of_peer_id(host.peer_id)
        self._numbers = numbers or SequenceNumbers()
        self._queues: dict[PeerId, OutboundQueue] = {}
        """Outbound queues, one for each peer with an open outbound stream."""
        self._with_writer: set[PeerId] = set()
        self._inbound: dict[PeerId, Stream] = {}
        self._nursery: trio.Nursery | None = None
        for protocol in PROTOCOLS:
            host.serve_streams(protocol, self._serve)
        host.add_peer_callbacks(connected=self._on_connected)
        host.attach_service(self.run)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run heartbeats until cancelled. Started once streams of peers can be accepted."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                self._heartbeat(
                    peer for peer, queue in self._queues.items() if queue.num_data_bytes
                )
                await trio.sleep(self._settings.mesh.heartbeat_s)

    async def publish(self, topic: str, data: bytes) -> int:
        """Publish `data`; see `Gossip`. Waits for capacity in full queues up to the deadline of the
        settings, then skips peers whose queues are still full."""
        self._refuse_oversize(data)
        await trio.lowlevel.checkpoint()
        size = len(data) + MESSAGE_OVERHEAD_BYTES
        queues = [self._queues.get(peer) for peer in self._mesh.publish_targets(topic)]
        full = [queue for queue in queues if queue is not None and not queue.has_capacity(size)]
        if full:
            with trio.move_on_after(self._settings.publish_deadline_s):
                async with trio.open_nursery() as nursery:
                    for queue in full:
                        nursery.start_soon(queue.wait_for_capacity, size)
        await self._numbers.reserve()
        number = self._numbers.next()
        signed = sign_message(self._host.identity, self._own_id, topic, data, number)
        sent = self._mesh.publish(to_message(signed), trio.current_time())
        num_queued = self._perform((sent,))
        self._mesh.counts["publish_skipped"] += len(sent.peers) - num_queued
        return num_queued

    def lag_s(self, sent_since: float = -math.inf) -> float | None:
        """Return the larger of the arrival lag and the median wait of the outbound queues, in
        seconds.

        Peers that neither read nor send are not counted.
        """
        now = trio.current_time()
        waits = [
            (queue.oldest_wait_s(now), self._host.silent_s(peer))
            for peer, queue in self._queues.items()
        ]
        arriving, waiting = super().lag_s(sent_since), median_wait_s(waits)
        return arriving if not waiting else max(arriving or 0.0, waiting)

    def reject_reason(self, message: Message) -> Reason | None:
        return reject_reason(message.signed, self._limits.max_message_bytes)

    def pack(self, message: Message) -> bytes:
        return pack(message)

    def _source_of(self, peer: PeerId) -> str:
        return self._host.source_of(peer)

    def _send(self, peer: PeerId, rpc: Rpc) -> None:
        queue = self._queues.get(peer)
        is_sent = queue is None or queue.push(encode(rpc), control=True)
        if not is_sent and (rpc.subscriptions or rpc.graft or rpc.prune):
            # The two ends would disagree about the mesh, so both have to start over.
            logger.info("disconnecting %s: control queue full", peer)
            self._host.abort(peer)

    def _push(self, peer: PeerId, frame: bytes) -> bool:
        queue = self._queues.get(peer)
        return queue is not None and queue.push(frame)

    def _spawn(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        if self._nursery is None:
            raise RuntimeError("gossip is not running")
        self._nursery.start_soon(task, *arguments)

    # Inbound stream

    async def _serve(self, peer: PeerId, stream: Stream) -> None:
        """Read one inbound stream to its end. Raises only cancellation."""
        previous = self._inbound.get(peer)
        self._inbound[peer] = stream
        self._mesh.on_reading(peer, prefix_of(remote_endpoint(stream)[0]))
        if previous is not None:
            await reset_stream(previous)
        try:
            await self._read_all(stream, peer)
        except (MalformedFrameError, DecodeError, UnicodeDecodeError) as error:
            # protobuf does not check proto2 strings when parsing.
            self._mesh.counts["malformed_rpc"] += 1
            logger.info("malformed pubsub RPC from %s: %s", peer, error)
            self._scorer.on_behaviour(peer, Cause.MALFORMED_RPC)
        except AnyStreamError as error:
            logger.debug("pubsub stream of %s ended: %r", peer, error)
        except Exception:  # library code may raise any type for a peer's bytes
            self._mesh.counts["fault"] += 1
            logger.exception("pubsub stream of %s failed", peer)
        finally:
            if self._inbound.get(peer) is stream:
                del self._inbound[peer]
                self._mesh.on_reading_ended(peer)
            await reset_stream(stream)

    async def _read_all(self, stream: Stream, peer: PeerId) -> None:
        muxed = muxed_stream(stream)
        frames = FrameReader(muxed, MAX_RPC_BYTES)
        slots = trio.Semaphore(self._limits.max_validating_per_peer)
        if isinstance(muxed, WindowedStream):
            muxed.consume = partial(self._consume, peer, frames, slots)
        while True:
            await self._pause_reading(peer)
            raw = await frames.read()
            if self._mesh.is_graylisted(peer):
                await trio.sleep(RETRY_S)
                continue
            is_first = True
            for part in decode(raw, self._limits):
                if not is_first:
                    await trio.lowlevel.checkpoint()
                is_first = False
                await self._handle_part(peer, part, slots)

    def _consume(
        self, peer: PeerId, frames: FrameReader, slots: trio.Semaphore, data: bytes
    ) -> bool:
        """Process `data` if it is one whole RPC and nothing has to wait. Otherwise return False,
        and the reader processes it."""
        raw = frames.whole_frame(data)
        now = trio.current_time()
        if (
            raw is None
            or slots.value < self._limits.max_validating_per_peer
            or self._mesh.is_graylisted(peer)
            or not self._mesh.may_read(peer, now)
        ):
            return False
        try:
            parts = list(decode(raw, self._limits))
            if len(parts) > 1 or len(parts[0].messages) > slots.value:
                return False
            for event in self._mesh.receive(peer, parts[0], now):
                if isinstance(event, MessageReceived):
                    slots.acquire_nowait()
                    self._admit(peer, event.message, slots.release)
                else:
                    self._perform((event,))
        except Exception:  # noqa: BLE001 - raised again by the reader, which handles it
            return False
        return True

    async def _pause_reading(self, peer: PeerId) -> None:
        """Pause reading while a peer exceeds its rate, and charge offences by the second."""
        while (pause := self._mesh.pause(peer, trio.current_time())) is not None:
            await trio.sleep(pause.seconds)
            self._perform(self._mesh.on_pause_ended(peer, pause, trio.current_time()))

    async def _handle_part(self, peer: PeerId, rpc: Rpc, slots: trio.Semaphore) -> None:
        for event in self._mesh.receive(peer, rpc, trio.current_time()):
            if not isinstance(event, MessageReceived):
                self._perform((event,))
                continue
            await self._acquire_slot(slots, peer)
            self._admit(peer, event.message, slots.release)

    async def _acquire_slot(self, slots: trio.Semaphore, peer: PeerId) -> None:
        """Acquire a validation slot, and record the read pause in the mesh at intervals
        meanwhile."""
        if slots.value == self._limits.max_validating_per_peer:
            slots.acquire_nowait()
            return
        while slots.value == 0:
            paused_at = trio.current_time()
            with trio.move_on_after(READ_BEHIND_S) as pause:
                await slots.acquire()
            now = trio.current_time()
            self._mesh.on_read_paused(peer, now - paused_at, now)
            if not pause.cancelled_caught:
                return
        # acquire() also yields, so that other tasks run and the work admitted so far is charged
        # before more is read.
        await slots.acquire()

    # Outbound stream

    def _on_connected(self, peer: PeerId) -> None:
        if peer not in self._with_writer and self._nursery is not None:
            self._with_writer.add(peer)
            self._nursery.start_soon(self._keep_stream, peer)

    async def _keep_stream(self, peer: PeerId) -> None:
        """Keep an outbound stream open to a peer while the host is connected to it.

        The connection may be closing while another one is being opened; then the next attempt
        succeeds.
        """
        wait_s = _RETRY_S
        try:
            while self._host.is_connected(peer):
                try:
                    with trio.fail_after(self._limits.stream_deadline_s):
                        stream = await self._host.open_stream(peer, *PROTOCOLS)
                except Exception as error:  # noqa: BLE001 - retried after any failure
                    logger.debug("no pubsub stream to %s yet: %r", peer, error)
                    wait_s = min(2 * wait_s, _LONGEST_RETRY_S)
                else:
                    await self._use_stream(stream, peer)
                    wait_s = _RETRY_S
                await trio.sleep(wait_s)
        finally:
            self._with_writer.discard(peer)

    async def _use_stream(self, stream: Stream, peer: PeerId) -> None:
        """Write queued frames to a peer until the stream ends."""
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
                self._mesh.on_stream_opened(
                    peer, now, knows_idontwant=knows_idontwant, is_dialled=is_dialled
                )
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_close_with, queue, stream)
                await self._write_all(stream, peer, queue)
                nursery.cancel_scope.cancel()
        finally:
            queue.close()
            del self._queues[peer]
            self._mesh.on_stream_closed(peer)
            await reset_stream(stream)

    async def _write_all(self, stream: Stream, peer: PeerId, queue: OutboundQueue) -> None:
        """Write to the stream as its only writer. A failed write closes the connection."""
        frames: list[bytes] = []
        try:
            while frames := await queue.pop(MAX_BODY_BYTES):
                with trio.fail_after(self._limits.write_deadline_s):
                    await muxed_stream(stream).write(b"".join(frames))
        except Exception as error:  # noqa: BLE001 - a broken stream may raise anything
            log_failure("sending to", peer, error)
            if len(queue) or len(frames) > 1:
                self._scorer.on_behaviour(peer, Cause.SLOW_READER)
            abort(stream)


def _write_now(stream: Stream, frame: bytes) -> bool:
    try:
        return muxed_stream(stream).write_now(frame)
    except AnyStreamError:  # the writer task gets the same error and closes the connection
        return False


async def _close_with(queue: OutboundQueue, stream: Stream) -> None:
    """Close the queue when the connection of its stream ends."""
    await wait_for_end(stream)
    queue.close()

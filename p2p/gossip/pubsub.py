"""Pubsub that outlives any bytes a peer can send, loses nothing in silence, and is bounded.

In py-libp2p 0.8.1 a malformed RPC, a junk key, a raising validator or a failing write ends the
process; every message becomes a task; a message is marked seen only after validation, so eight
copies in one RPC are delivered eight times; and a stream that breaks on a live connection leaves
the two ends disagreeing for ever about who is subscribed.  Here:

* one reader per inbound stream, with a bounded number of messages under validation each; a peer
  that sends faster, or mostly what brings nothing, is read more slowly, and TCP holds it back;
* one writer per outbound stream, fed by a bounded queue;
* whatever a peer's bytes raise resets its stream; three times in a minute, and the peer is banned;
* a failed write ends the connection, so that both ends start again from nothing.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import trio
from google.protobuf.message import DecodeError
from libp2p.abc import IHost, INetStream
from libp2p.exceptions import BaseLibp2pError
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub

from p2p.gossip.blame import COPY, BlameBook
from p2p.gossip.flood_gate import FloodGate, FloodLimits, SenderFlow
from p2p.gossip.interface import OVERLOAD
from p2p.gossip.messages import SeenCache, fault_of, message_id, refuse_hollow, sign_message
from p2p.gossip.outbound import MAX_RPC_BYTES, OutboundQueue, encode_frame
from p2p.gossip.router import GossipRouter
from p2p.gossip.slots import take_slot
from p2p.net.identity import Identity
from p2p.net.inbound_gate import prefix_of
from p2p.net.streams import FrameReader, MalformedFrameError, below, log_failure, reset_stream
from p2p.net.swarm import remote_host
from p2p.net.yamux import abort
from p2p.standing.scoring import Cause
from shoal_base.bounded import BoundedDict
from shoal_wire.limits import MAX_MESSAGE_BYTES
from shoal_wire.verdict import Outcome, Verdict, verdict

logger = logging.getLogger(__name__)

Validate = Callable[[str, bytes, ID, ID], Awaitable[Verdict]]
"""``await validate(topic, data, author, forwarder)``: never raises, always in bounded time."""
Report = Callable[[ID, ID | None, Verdict], None]
"""``report(forwarder, author, verdict)``: one call for each message judged."""
Charge = Callable[[ID, Cause], None]
"""``charge(peer, cause)``: a peer's behaviour, which no message shows."""

_GRAYLISTED_PAUSE_S = 1.0
"""Between two RPCs of a peer whose RPCs are thrown away unread."""
_LEAST_PAUSE_S = 0.01
"""Of a peer that has sent too much: a debt of almost nothing is waited for again and again."""
_MESSAGES_A_STEP = 64
"""Messages taken from one RPC before everybody else has a turn."""
_MAX_OFFENDERS = 1024
_WRITTEN_AT_ONCE_BYTES = 60_000
"""Of frames that wait together for one peer; a message of noise, and of yamux, holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PubsubLimits:
    """What one peer, and all peers together, may occupy."""

    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_queue_frames: int = 1024
    max_queue_bytes: int = 32 * 1024 * 1024
    """Outbound, for each peer. The frames themselves are shared between queues."""
    max_validating_per_peer: int = 16
    """Messages of one peer under validation; then its stream is not read."""
    seen_ttl_s: float = 120.0
    max_seen_ids: int = 200_000
    max_subscriptions_per_peer: int = 64
    max_topic_chars: int = 256
    stream_deadline_s: float = 10.0
    """To open a pubsub stream and say hello."""
    write_deadline_s: float = 30.0
    """For one frame, or some small ones: a peer that reads more slowly is cut."""
    max_messages_per_rpc: int = 1024
    """The rest of a longer RPC is not looked at, and counts as waste."""
    flood: FloodLimits = field(default_factory=FloodLimits)
    offences_to_ban: int = 3
    offence_window_s: float = 60.0


class GuardedPubsub(Pubsub):
    """Streams, subscriptions and messages; the router decides who gets what."""

    router: GossipRouter
    seen_messages: SeenCache

    def __init__(
        self,
        host: IHost,
        router: GossipRouter,
        *,
        identity: Identity,
        limits: PubsubLimits,
        validate: Validate,
        report: Report,
        ban: Callable[[ID], None],
        charge: Charge,
    ) -> None:
        super().__init__(
            host,
            router,
            max_subscriptions_per_peer=limits.max_subscriptions_per_peer,
            max_inbound_rpc_size=MAX_RPC_BYTES,
        )
        cast(Any, self.seen_messages).stop()  # the library's own
        self.seen_messages = SeenCache(ttl_s=limits.seen_ttl_s, max_ids=limits.max_seen_ids)
        # Seconds would repeat after a restart, and receivers would drop the messages as seen.
        self.counter = time.time_ns()
        self._identity = identity
        self._limits = limits
        self._validate = validate
        self._report = report
        self._ban = ban
        self._charge = charge
        self._floods = FloodGate(limits.flood)
        self._blame = BlameBook(ttl_s=limits.seen_ttl_s, max_ids=limits.max_seen_ids)
        self._own_id = self.my_id.to_bytes()
        self._in_flight: set[bytes] = set()
        self._inbound: dict[ID, INetStream] = {}
        self._networks: dict[ID, str | None] = {}
        """Of those whose stream is read; as `prefix_of` has it."""
        self._judging: trio.Nursery | None = None
        self._registering: set[ID] = set()
        self._offences: BoundedDict[ID, deque[float]] = BoundedDict(_MAX_OFFENDERS)
        self.counts: Counter[str] = Counter()
        """received, duplicate, own_echo, forwarded, malformed_rpc, fault, unknown_topic,
        publish_skipped, held_back"""

    def knows(self, key: bytes) -> bool:
        """True if a message is seen or being judged."""
        return key in self._in_flight or self.seen_messages.has(key)

    def judges(self, key: bytes) -> bool:
        """True if a message is being judged."""
        return key in self._in_flight

    async def run(self) -> None:
        """Run until cancelled."""
        # The library's manager would keep a row, a name and an id for the task of each message.
        async with trio.open_nursery() as self._judging:
            await super().run()
            self._judging.cancel_scope.cancel()

    # Inbound

    async def stream_handler(self, stream: INetStream) -> None:
        """Read one inbound pubsub stream to its end. Raises nothing but cancellation."""
        peer_id = stream.muxed_conn.peer_id
        previous = self._inbound.get(peer_id)
        self._inbound[peer_id] = stream
        self._networks[peer_id] = prefix_of(remote_host(stream.muxed_conn))
        if previous is not None:
            await reset_stream(previous)
        try:
            await self._read_rpcs(stream, peer_id)
        except (MalformedFrameError, DecodeError, UnicodeDecodeError) as error:
            # The text of proto2 messages is not checked when they are parsed.
            self._note_offence(peer_id, error)
        except BaseLibp2pError as error:
            logger.debug("pubsub stream of %s ended: %r", peer_id, error)
        except Exception:  # a peer's bytes reach library code that raises any type
            self.counts["fault"] += 1
            logger.exception("pubsub stream of %s failed", peer_id)
        finally:
            if self._inbound.get(peer_id) is stream:
                del self._inbound[peer_id], self._networks[peer_id]
                self._forget_all_subscriptions(peer_id)
                self.router.leave_meshes(peer_id)
            await reset_stream(stream)

    async def _read_rpcs(self, stream: INetStream, peer_id: ID) -> None:
        frames = FrameReader(below(stream), self.max_inbound_rpc_size)
        slots = trio.Semaphore(self._limits.max_validating_per_peer)
        flow = self._flow_of(peer_id)
        while self.manager.is_running:
            await self._hold_back(peer_id, flow)
            raw = await frames.read()
            if self.router.scorer.is_graylisted(peer_id, [""]):
                await trio.sleep(_GRAYLISTED_PAUSE_S)
                continue
            rpc = rpc_pb2.RPC()
            rpc.ParseFromString(raw)
            refuse_hollow(rpc, len(raw))
            flow.arrived(len(rpc.publish), len(raw), trio.current_time())
            for change in rpc.subscriptions[: self._limits.max_subscriptions_per_peer]:
                self.handle_subscription(peer_id, change)
            await self._take_all(slots, peer_id, flow, rpc)
            if rpc.HasField("control"):
                await self.router.handle_rpc(rpc, peer_id)

    def _flow_of(self, peer_id: ID) -> SenderFlow:
        network = self._networks.get(peer_id)
        return self._floods.flow(peer_id.to_bytes(), trio.current_time(), network=network)

    async def _hold_back(self, peer_id: ID, flow: SenderFlow) -> None:
        """Leave a peer unread that has sent too much; its own fault is charged by the second."""
        while (wait_s := flow.wait_s(now := trio.current_time())) > 0:
            wait_s = min(max(wait_s, _LEAST_PAUSE_S), 1.0)
            is_to_blame = flow.is_to_blame(now)
            self.counts["held_back"] += 1
            await trio.sleep(wait_s)
            self.router.left_unread(peer_id, wait_s)
            for _ in range(flow.held(wait_s, trio.current_time()) if is_to_blame else 0):
                self._charge(peer_id, Cause.FLOOD)

    async def _take_all(
        self, slots: trio.Semaphore, peer_id: ID, flow: SenderFlow, rpc: rpc_pb2.RPC
    ) -> None:
        taken = rpc.publish[: self._limits.max_messages_per_rpc]
        if len(rpc.publish) > len(taken):
            flow.wasted(len(rpc.publish) - len(taken), trio.current_time())
        for number, message in enumerate(taken):
            if number % _MESSAGES_A_STEP == _MESSAGES_A_STEP - 1:
                await trio.lowlevel.checkpoint()
            await self._take(slots, peer_id, flow, message)

    async def _take(
        self, slots: trio.Semaphore, peer_id: ID, flow: SenderFlow, message: rpc_pb2.Message
    ) -> None:
        self.counts["received"] += 1
        key = message_id(message)
        if self.knows(key):
            self.router.note_holder(peer_id, key)
            # Another's copy may be put off for what we cannot do now: this one came all the same.
            self.router.note_sent(peer_id, key)
            self._count_copy(peer_id, flow, key)
        elif not self._is_subscribed_to_msg(message):
            self.counts["unknown_topic"] += 1
            flow.wasted(COPY, trio.current_time())
        else:
            await take_slot(slots, lambda s: self.router.left_unread(peer_id, s))
            self._judge_apart(slots, peer_id, message)

    def _count_copy(self, peer_id: ID, flow: SenderFlow, key: bytes) -> None:
        self.counts["duplicate"] += 1
        now = trio.current_time()
        flow.wasted(self._blame.copied(key, peer_id.to_bytes(), now), now)

    def _judge_apart(self, slots: trio.Semaphore, peer_id: ID, message: rpc_pb2.Message) -> None:
        start = self._judging.start_soon if self._judging else self.manager.run_task
        try:
            start(self._push_and_release, slots, peer_id, message)
        except RuntimeError:  # it has ended, and whoever reads for it is about to
            slots.release()

    async def _push_and_release(
        self, slots: trio.Semaphore, peer_id: ID, message: rpc_pb2.Message
    ) -> None:
        try:
            await self.push_msg(peer_id, message)
        finally:
            slots.release()

    def _note_offence(self, peer_id: ID, error: Exception) -> None:
        """Count a malformed RPC; enough of them and the peer is cut off for a while."""
        self.counts["malformed_rpc"] += 1
        self._charge(peer_id, Cause.MALFORMED_RPC)
        logger.info("malformed pubsub RPC from %s: %s", peer_id, error)
        now = trio.current_time()
        times = self._offences.setdefault(peer_id, deque(maxlen=self._limits.offences_to_ban))
        times.append(now)
        if len(times) == times.maxlen and now - times[0] <= self._limits.offence_window_s:
            self._ban(peer_id)

    # Messages

    async def push_msg(self, msg_forwarder: ID, msg: rpc_pb2.Message) -> None:
        """Judge a peer's message and act on the verdict. Raises nothing but cancellation."""
        try:
            await self._judge_message(msg_forwarder, msg)
        except Exception:  # one message must never end the node
            self.counts["fault"] += 1
            logger.exception("message from %s failed", msg_forwarder)

    async def _judge_message(self, forwarder: ID, message: rpc_pb2.Message) -> None:
        key = message_id(message)
        if self.knows(key):
            self._count_copy(forwarder, self._flow_of(forwarder), key)
            return
        # From here to the in-flight mark nothing awaits, and only an authentic message is marked:
        # a forged one must not be able to shut out the real one.
        fault = fault_of(message, self._limits.max_message_bytes)
        if fault is not None:
            # The forwarder alone: whoever it says the author is may never have seen this.
            self._account(forwarder, forwarder, message, verdict(fault))
            self._report(forwarder, None, verdict(fault))
            return
        # Anybody can add these, and peers that verify every byte would blame who passed them on.
        message.DiscardUnknownFields()
        if message.from_id == self._own_id:
            self.counts["own_echo"] += 1
            self.seen_messages.add(key)
            return
        self._in_flight.add(key)
        self._blame.copied(key, forwarder.to_bytes(), trio.current_time())
        try:
            await self.router.announce_large(message, forwarder)
            author = ID(bytes(message.from_id))
            judged = await self._validate(message.topicIDs[0], message.data, author, forwarder)
            await self._conclude(forwarder, author, message, judged)
        finally:
            self._in_flight.discard(key)

    async def _conclude(
        self, forwarder: ID, author: ID, message: rpc_pb2.Message, judged: Verdict
    ) -> None:
        """The one place where a verdict becomes what gossipsub does with the message."""
        key = message_id(message)
        self._account(forwarder, author, message, judged)
        self._report(forwarder, author, judged)
        self.router.note_sent(forwarder, key)
        if judged.reason not in OVERLOAD:
            self.seen_messages.add(key)
        if judged.outcome == Outcome.ACCEPT:
            self.counts["forwarded"] += 1
            for holder in (forwarder, author):
                self.router.note_holder(holder, key)
            await self.router.publish(forwarder, message)

    def _account(
        self, forwarder: ID, author: ID, message: rpc_pb2.Message, judged: Verdict
    ) -> None:
        """Count what a judged message wasted, for whoever answers for it."""
        waste = self._blame.judged(
            judged,
            key=message_id(message),
            content=lambda: hashlib.sha256(message.from_id + message.data).digest(),
            author=author.to_bytes(),
            forwarder=forwarder.to_bytes(),
        )
        now = trio.current_time()
        if waste.of_forwarder:
            self._flow_of(forwarder).wasted(waste.of_forwarder, now)
        if waste.of_author:
            self._floods.wasted_by_author(author.to_bytes(), waste.of_author, now)
        self._flow_of(forwarder).worked(judged.work_s, now, own_message=forwarder == author)

    async def publish_own(self, topic: str, data: bytes, wait_s: float) -> int:
        """Sign and queue a message of our own; return how many peers it was queued for.

        Waits up to `wait_s` seconds for full queues; a peer still full then is left out.
        """
        self.counter = max(self.counter + 1, time.time_ns())
        message = sign_message(self._identity, self._own_id, topic, data, self.counter)
        size = len(encode_frame(rpc_pb2.RPC(publish=[message])))
        with trio.move_on_after(wait_s):
            async with trio.open_nursery() as nursery:
                for peer in self.router.own_targets(message, self.my_id):
                    if (queue := self.peer_queues.get(peer)) and not queue.has_room(size):
                        nursery.start_soon(queue.wait_for_room, size)
        self.seen_messages.add(message_id(message))
        targets = self.router.own_targets(message, self.my_id)
        queued = self.router.forward(message, targets)
        self.counts["publish_skipped"] += len(targets) - queued
        return queued

    async def publish(self, topic_id: str | list[str], data: bytes) -> None:
        """Not used: it would send without back-pressure; see `publish_own`."""
        raise NotImplementedError

    # Subscriptions

    def get_hello_packet(self) -> rpc_pb2.RPC:
        """Our subscriptions, without the signed peer record."""
        return rpc_pb2.RPC(
            subscriptions=[
                rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic) for topic in self.topic_ids
            ]
        )

    def _build_announce_rpc(
        self, topic_id: str, subscribe: bool
    ) -> tuple[rpc_pb2.RPC, rpc_pb2.RPC.SubOpts]:
        change = rpc_pb2.RPC.SubOpts(subscribe=subscribe, topicid=topic_id)
        return rpc_pb2.RPC(subscriptions=[change]), change

    def handle_subscription(self, origin_id: ID, sub_message: rpc_pb2.RPC.SubOpts) -> None:
        """Note a peer's subscription, within the caps."""
        topic = sub_message.topicid
        is_text = topic.isascii() and topic.isprintable()
        if len(topic) > self._limits.max_topic_chars or not is_text:
            return
        super().handle_subscription(origin_id, sub_message)
        if not sub_message.subscribe:
            for members in (self.router.mesh.get(topic), self.router.fanout.get(topic)):
                if members:
                    members.discard(origin_id)

    async def _replay_recent_messages(self, peer_id: ID, topic: str) -> None:
        """Never; see `GossipRouter.send_recent_messages`."""

    # Outbound

    async def _handle_new_peer_with_retry(
        self,
        peer_id: ID,
        timeout: float | None = None,  # noqa: ASYNC109 - the base's signature
    ) -> None:
        """Open the outbound stream, for as long as the peer is connected and we have none."""
        if peer_id in self._registering:
            return
        self._registering.add(peer_id)
        delay = 0.25
        try:
            while peer_id not in self.peers and self._peer_is_connected(peer_id):
                try:
                    await self._handle_new_peer(peer_id)
                except Exception as error:  # noqa: BLE001 - any failure means: try again later
                    logger.debug("no pubsub stream to %s yet: %r", peer_id, error)
                    await trio.sleep(delay)
                    delay = min(2 * delay, 5.0)
        finally:
            self._registering.discard(peer_id)

    async def _handle_new_peer(self, peer_id: ID) -> None:
        with trio.fail_after(self._limits.stream_deadline_s):
            stream = await self.host.new_stream(peer_id, self.protocols)
            try:
                await stream.write(encode_frame(self.get_hello_packet()))
            except BaseException:
                await reset_stream(stream)
                raise
        self.router.add_peer(peer_id, stream.get_protocol())
        queue = OutboundQueue(
            max_frames=self._limits.max_queue_frames, max_bytes=self._limits.max_queue_bytes
        )
        # No await between the hello's topics and the queue: a subscription made meanwhile is
        # either in the hello or announced through the queue, so send the difference now.
        self.peers[peer_id] = stream
        self.peer_queues[peer_id] = queue
        queue.push(self.get_hello_packet())
        self.manager.run_task(self.handle_sending_messages, peer_id, stream, queue)
        for topic in list(self.router.mesh):
            if peer_id in self.peer_topics.get(topic, ()):
                await self.router.on_peer_subscribed(peer_id, topic)

    async def handle_sending_messages(
        self, peer_id: ID, stream: INetStream, queue: OutboundQueue
    ) -> None:
        """The stream's only writer. A failed write ends the connection it was made on."""
        frames: list[bytes] = []
        try:
            while frames := await queue.pop_frames(_WRITTEN_AT_ONCE_BYTES):
                with trio.fail_after(self._limits.write_deadline_s):
                    await below(stream).write(b"".join(frames))
            await reset_stream(stream)
        except Exception as error:  # noqa: BLE001 - whatever a broken stream raises
            log_failure("sending to", peer_id, error)
            if len(queue) or len(frames) > 1:
                self._charge(peer_id, Cause.SLOW_READER)
            abort(stream.muxed_conn)
            if self.peer_queues.get(peer_id) is queue:
                self._handle_dead_peer(peer_id)

    async def handle_dead_peer_queue(self) -> None:
        """A connection ended: if our stream was on it, open one on the connection that is left."""
        async with self.dead_peer_receive_channel:
            self.event_handle_dead_peer_queue_started.set()
            async for peer_id in self.dead_peer_receive_channel:
                stream = self.peers.get(peer_id)
                if (
                    stream is None
                    or stream.muxed_conn.event_shutting_down.is_set()
                    or not self._peer_is_connected(peer_id)
                ):
                    self._handle_dead_peer(peer_id)

    def _peer_is_connected(self, peer_id: ID) -> bool:
        """True while a connection is open and not on its way down."""
        return any(
            not connection.is_closed and not connection.muxed_conn.event_shutting_down.is_set()
            for connection in self.host.get_network().get_connections(peer_id)
        )

    def _handle_dead_peer(self, peer_id: ID) -> None:
        """Forget the outbound side; open it again if another connection lives."""
        self._clear_pending_announce_retries_for_peer(peer_id)
        if self.peers.pop(peer_id, None) is not None:
            if queue := self.peer_queues.pop(peer_id, None):
                queue.close()
            self.router.remove_peer(peer_id)
        if not self._peer_is_connected(peer_id):
            self._forget_all_subscriptions(peer_id)
        elif self.manager.is_running:
            self.manager.run_task(self._handle_new_peer_with_retry, peer_id)

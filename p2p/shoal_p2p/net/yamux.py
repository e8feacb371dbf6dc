"""Yamux connections that detect silent peers, contain their errors and can be aborted.

py-libp2p 0.8.1 measures round trips every 30 s and ignores a missing answer, so a half-open
connection lives for ever. Closing one first writes GO_AWAY, which blocks on a full socket. Here
each connection sends its own pings, and `abort` closes the TCP socket below all layers.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

import trio
from libp2p.abc import IMuxedConn, IMuxedStream, INetConn, IRawConnection, ISecureConn
from libp2p.peer.id import ID
from libp2p.protocol_muxer.exceptions import MultiselectClientError, MultiselectError
from libp2p.stream_muxer.yamux.yamux import (
    FLAG_SYN,
    TYPE_PING,
    YAMUX_HEADER_FORMAT,
)
from libp2p.transport.exceptions import MuxerUpgradeFailure
from libp2p.transport.upgrader import TransportUpgrader

from shoal_base.bounded import MANY
from shoal_base.ranges import Ranged, Seconds
from shoal_base.waits import AT_ONCE_S, LEAST_PAUSE_S
from shoal_p2p.fair.buckets import BucketGroup, HierarchicalBuckets, Rate
from shoal_p2p.net.channel import Channel
from shoal_p2p.net.circuit import CircuitStream
from shoal_p2p.net.inbound_gate import prefix_of
from shoal_p2p.net.layers import lowest_layer, source_of
from shoal_p2p.net.negotiation import bound_negotiation
from shoal_p2p.net.windows import MAX_TOTAL_UNREAD_BYTES, ReceiveBufferLimit, WindowedYamux

logger = logging.getLogger(__name__)

_FIRST_PING_S = 0.2
"""Delay of the first ping, which measures the latency of a new connection."""
CONNECTION_STREAM_RATE = Rate(burst=400.0, per_second=100.0)
"""Streams that a connection may open. Each costs a frame of a few bytes, and about a millisecond to
serve. Honest peers send at most about twenty requests a second (`fetch.client`)."""
SOURCE_STREAM_RATE = Rate(
    burst=2 * CONNECTION_STREAM_RATE.burst, per_second=2 * CONNECTION_STREAM_RATE.per_second
)
"""Rate shared by all connections from one network, or through one relay, so that another connection
does not grant another burst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepaliveSettings(Ranged):
    """Ping intervals. A silent peer is detected after at most the sum of the first two."""

    ping_interval_s: Seconds = 10.0
    """Seconds of silence after which a peer is pinged."""
    ping_deadline_s: Seconds = 5.0
    latency_interval_s: Seconds = 60.0
    """Interval at which the round trip of a busy connection is measured."""


def abort(connection: object) -> None:
    """Close the TCP socket below `connection` at once: readers and writers fail, and RST is sent.

    For a relayed connection only the circuit is closed.
    """
    stream = lowest_layer(connection)
    if isinstance(stream, CircuitStream):
        stream.abort()
        return
    if not isinstance(stream, trio.SocketStream):
        logger.warning("cannot abort %r: no TCP socket found below it", connection)
        return
    with contextlib.suppress(OSError):  # already closed
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def close_connection(connection: INetConn, nursery: trio.Nursery) -> None:
    """Send GO_AWAY and close. If that blocks, close the socket, which unblocks it.

    GO_AWAY is sent in `nursery`: if it were cancelled, py-libp2p would keep the connection listed.
    """
    closed = trio.Event()

    async def close() -> None:
        try:
            await connection.close()
        except Exception as error:  # noqa: BLE001 - the other side may close it at any moment
            logger.debug("close failed: %r", error)
        closed.set()

    nursery.start_soon(close)
    with trio.move_on_after(AT_ONCE_S):
        await closed.wait()
    if not closed.is_set():
        abort(connection)


class KeepaliveYamux(WindowedYamux):
    """Yamux that closes itself when the peer is silent, and contains its own errors."""

    _ping_id: int

    def __init__(
        self,
        below: Channel,
        peer_id: ID,
        *,
        keepalive: KeepaliveSettings,
        shared_limit: ReceiveBufferLimit | None = None,
    ) -> None:
        super().__init__(below, peer_id, shared_limit=shared_limit)
        self._keepalive = keepalive
        self._last_received_at = trio.current_time()
        self._pace: BucketGroup | None = None
        self._is_pace_logged = False
        self.latency_s: float | None = None
        """The last measured round trip; None before the first."""

    @property
    def silent_s(self) -> float:
        """Seconds since anything was received, including ping replies."""
        return trio.current_time() - self._last_received_at

    async def start(self) -> None:
        """Run until the connection ends. Errors caused by a peer's frames end only this
        connection."""
        try:
            await super().start()
        except Exception:  # a hostile frame ends its connection and nothing else
            logger.exception("connection to %s failed", self.peer_id)
            abort(self)
        if not self.is_closed:
            await self._cleanup_on_error()

    def set_stream_pace(self, pace: BucketGroup) -> None:
        """Accept streams at this rate. Above it they are accepted later and nothing else is read
        meanwhile, so that TCP slows the peer down. That is not charged to the peer."""
        self._pace = pace

    async def accept_stream(self) -> IMuxedStream:
        """Return the next stream that the peer opens, within the rate. Raises
        MuxedConnUnavailable."""
        stream = await super().accept_stream()
        if self._pace is not None:
            await self._wait_for(self._pace)
            self._pace.debit(1.0, trio.current_time())
        return stream

    async def _wait_for(self, pace: BucketGroup) -> None:
        while (wait_s := pace.wait_s(0.0, trio.current_time())) > 0:
            if not self._is_pace_logged:
                self._is_pace_logged = True
                logger.info("%s opens streams too fast: they are accepted later", self.peer_id)
            with trio.move_on_after(max(wait_s, LEAST_PAUSE_S)):
                await self.event_shutting_down.wait()
                return

    async def _receive(self) -> None:
        await super()._receive()
        self._last_received_at = trio.current_time()

    async def _measure_rtt_loop(self) -> None:
        with trio.move_on_after(_FIRST_PING_S):
            await self.event_shutting_down.wait()
        while not self.event_shutting_down.is_set():
            if not await self._ping():
                logger.info("closing the connection to %s: no reply to a ping", self.peer_id)
                abort(self)
                return
            await self._wait_until_ping_due()

    async def _wait_until_ping_due(self) -> None:
        while not self.event_shutting_down.is_set():
            due = self._ping_due_at()
            if trio.current_time() >= due:
                return
            with trio.move_on_at(due):
                await self.event_shutting_down.wait()

    def _ping_due_at(self) -> float:
        silent_at = self._last_received_at + self._keepalive.ping_interval_s
        return min(silent_at, self._ping_sent_time + self._keepalive.latency_interval_s)

    async def _ping(self) -> bool:
        """Send one ping. False if neither the reply nor other data arrived within the deadline."""
        self._ping_id = (self._ping_id + 1) & 0xFFFFFFFF
        self._ping_event = pong = trio.Event()
        sent = self._ping_sent_time = trio.current_time()
        async with trio.open_nursery() as nursery:
            # A separate task, since cancelling a half-written frame would corrupt the connection.
            nursery.start_soon(self._write_ping)
            while not pong.is_set():
                waiting_since = trio.current_time()
                with trio.move_on_after(self._keepalive.ping_deadline_s):
                    await pong.wait()
                if not pong.is_set() and self._last_received_at < waiting_since:
                    abort(self)  # also unblocks the writer
                    return False
        self.latency_s = trio.current_time() - sent
        return True

    async def _write_ping(self) -> None:
        header = struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_PING, FLAG_SYN, 0, self._ping_id)
        try:
            await self._write_frame(header)
        except Exception as error:  # noqa: BLE001 - the reader notices a broken connection
            logger.debug("ping to %s not written: %r", self.peer_id, error)


class KeepaliveUpgrader(TransportUpgrader):
    """Upgrades to `KeepaliveYamux`; py-libp2p would construct its own class."""

    def __init__(
        self,
        security: dict[str, object],
        muxers: dict[str, object],
        keepalive: KeepaliveSettings,
        check: Callable[[ID], None] = lambda _peer: None,
    ) -> None:
        super().__init__(security, muxers)
        for layer in (self.security_multistream, self.muxer_multistream):
            bound_negotiation(layer)
        self._keepalive = keepalive
        self._check = check
        self._unread: ReceiveBufferLimit = ReceiveBufferLimit(
            max_bytes=MAX_TOTAL_UNREAD_BYTES, on_exceeded=abort
        )
        self._paces = HierarchicalBuckets(SOURCE_STREAM_RATE, CONNECTION_STREAM_RATE, max_keys=MANY)
        self._numbers = itertools.count()

    async def upgrade_security(
        self, raw_conn: IRawConnection, is_initiator: bool, peer_id: ID | None = None
    ) -> ISecureConn:
        """Secure `raw_conn`. Raises SecurityUpgradeFailure, also for a peer that may not
        connect."""
        secured = await super().upgrade_security(raw_conn, is_initiator, peer_id)
        self._check(secured.get_remote_peer())
        return secured

    async def upgrade_connection(self, conn: ISecureConn, peer_id: ID) -> IMuxedConn:
        """Negotiate yamux on `conn`. Raises MuxerUpgradeFailure."""
        try:
            await self.muxer_multistream.select_transport(conn)
        except (MultiselectError, MultiselectClientError) as error:
            raise MuxerUpgradeFailure("failed to negotiate yamux") from error
        assert isinstance(conn, Channel)
        muxed = KeepaliveYamux(conn, peer_id, keepalive=self._keepalive, shared_limit=self._unread)
        host, _port = muxed.get_remote_address() or ("", 0)
        self._unread.add(muxed, network=prefix_of(host), unread_bytes=muxed.unread_bytes)
        muxed.set_stream_pace(self.pace(source_of(muxed), trio.current_time()))
        return muxed

    def pace(self, source: str, now: float) -> BucketGroup:
        """Return the stream rate of a new connection from `source`."""
        return self._paces.get((source, str(next(self._numbers))), now)

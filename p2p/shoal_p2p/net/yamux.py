"""Yamux connections that notice a silent peer, never take the node down, and can be cut.

py-libp2p 0.8.1 measures round trips every 30 s and ignores a missing answer, so a half-open
connection lives for ever; and closing one first writes GO_AWAY, which blocks on a full socket.
Here each connection pings on its own, and `abort` closes the TCP socket underneath everything.
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
from shoal_base.waits import AT_ONCE_S, LEAST_PAUSE_S
from shoal_p2p.fair.buckets import BucketGroup, HierarchicalBuckets, Rate
from shoal_p2p.net.channel import Channel
from shoal_p2p.net.circuit import CircuitStream
from shoal_p2p.net.inbound_gate import prefix_of
from shoal_p2p.net.layers import lowest_layer, source_of
from shoal_p2p.net.negotiation import bound_negotiation
from shoal_p2p.net.windows import MAX_UNREAD_OF_ALL_BYTES, ReceiveBufferLimit, WindowedYamux

logger = logging.getLogger(__name__)

_FIRST_PING_S = 0.2
"""Delay of the first ping, which tells the latency of a new connection."""
OF_CONNECTION = Rate(burst=400.0, per_second=100.0)
"""Streams that a connection may open. One costs a frame of some bytes, and whoever serves it a
millisecond of its loop. Honest peers ask some twenty times a second at most (`fetch.asker`)."""
OF_SOURCE = Rate(burst=2 * OF_CONNECTION.burst, per_second=2 * OF_CONNECTION.per_second)
"""Shared by all connections from one network, or through one relay, so that another connection does
not grant another burst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepaliveSettings:
    """Intervals after which a silent peer is noticed: at most the sum of the first two."""

    ping_interval_s: float = 10.0
    """Seconds of silence after which a peer is pinged."""
    ping_deadline_s: float = 5.0
    latency_interval_s: float = 60.0
    """The round trip of a busy connection is measured so often."""


def abort(connection: object) -> None:
    """Close the TCP socket below `connection` at once: readers and writers fail, RST is sent.

    Of a connection through a relay only the circuit ends.
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
    """Say goodbye; if that blocks, close the socket, which unblocks it.

    The goodbye runs in `nursery`: cancelled half-way, py-libp2p would keep the connection listed.
    """
    closed = trio.Event()

    async def close() -> None:
        try:
            await connection.close()
        except Exception as error:  # noqa: BLE001 - the other side may break it at any moment
            logger.debug("close failed: %r", error)
        closed.set()

    nursery.start_soon(close)
    with trio.move_on_after(AT_ONCE_S):
        await closed.wait()
    if not closed.is_set():
        abort(connection)


class KeepaliveYamux(WindowedYamux):
    """Yamux that cuts itself off when the peer is silent, and whose own faults stay inside it."""

    _ping_id: int

    def __init__(
        self,
        below: Channel,
        peer_id: ID,
        *,
        keepalive: KeepaliveSettings,
        of_all: ReceiveBufferLimit | None = None,
    ) -> None:
        super().__init__(below, peer_id, of_all=of_all)
        self._keepalive = keepalive
        self._last_heard = trio.current_time()
        self._pace: BucketGroup | None = None
        self._is_held_back = False
        self.latency_s: float | None = None
        """The last measured round trip; None before the first."""

    @property
    def silent_s(self) -> float:
        """Return for how many seconds nothing has come, not even the answer to a ping."""
        return trio.current_time() - self._last_heard

    async def start(self) -> None:
        """Run until the connection ends. Whatever a peer's frames raise ends only this one."""
        try:
            await super().start()
        except Exception:  # hostile frames; the connection is the unit of failure
            logger.exception("connection to %s failed", self.peer_id)
            abort(self)
        if not self.is_closed:
            await self._cleanup_on_error()

    def keep_to(self, pace: BucketGroup) -> None:
        """Accept streams at this pace. Beyond it they are accepted later, and nothing else is read
        meanwhile: TCP holds the peer back. Nobody is blamed."""
        self._pace = pace

    async def accept_stream(self) -> IMuxedStream:
        """Return the next stream that the peer opens, in its time. Raises MuxedConnUnavailable."""
        stream = await super().accept_stream()
        if self._pace is not None:
            await self._wait_for(self._pace)
            self._pace.debit(1.0, trio.current_time())
        return stream

    async def _wait_for(self, pace: BucketGroup) -> None:
        while (wait_s := pace.wait_s(0.0, trio.current_time())) > 0:
            if not self._is_held_back:
                self._is_held_back = True
                logger.info("%s opens streams too fast: they are accepted later", self.peer_id)
            with trio.move_on_after(max(wait_s, LEAST_PAUSE_S)):
                await self.event_shutting_down.wait()
                return

    async def _receive(self) -> None:
        await super()._receive()
        self._last_heard = trio.current_time()

    async def _measure_rtt_loop(self) -> None:
        with trio.move_on_after(_FIRST_PING_S):
            await self.event_shutting_down.wait()
        while not self.event_shutting_down.is_set():
            if not await self._ping():
                logger.info("peer %s is silent, cutting its connection", self.peer_id)
                abort(self)
                return
            await self._until_a_ping_is_due()

    async def _until_a_ping_is_due(self) -> None:
        while not self.event_shutting_down.is_set():
            due = self._ping_due_at()
            if trio.current_time() >= due:
                return
            with trio.move_on_at(due):
                await self.event_shutting_down.wait()

    def _ping_due_at(self) -> float:
        silent_at = self._last_heard + self._keepalive.ping_interval_s
        return min(silent_at, self._ping_sent_time + self._keepalive.latency_interval_s)

    async def _ping(self) -> bool:
        """Send one ping. False if neither the answer nor any data came within the deadline."""
        self._ping_id = (self._ping_id + 1) & 0xFFFFFFFF
        self._ping_event = pong = trio.Event()
        sent = self._ping_sent_time = trio.current_time()
        async with trio.open_nursery() as nursery:
            # A task of its own: cancelling a half-written frame would corrupt the connection.
            nursery.start_soon(self._write_ping)
            while not pong.is_set():
                asked = trio.current_time()
                with trio.move_on_after(self._keepalive.ping_deadline_s):
                    await pong.wait()
                if not pong.is_set() and self._last_heard < asked:
                    abort(self)  # also unblocks the writer
                    return False
        self.latency_s = trio.current_time() - sent
        return True

    async def _write_ping(self) -> None:
        header = struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_PING, FLAG_SYN, 0, self._ping_id)
        try:
            await self._write_frame(header)
        except Exception as error:  # noqa: BLE001 - a broken connection, noticed by its reader
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
            max_bytes=MAX_UNREAD_OF_ALL_BYTES, cut=abort
        )
        self._paces = HierarchicalBuckets(OF_SOURCE, OF_CONNECTION, max_keys=MANY)
        self._numbers = itertools.count()

    async def upgrade_security(
        self, raw_conn: IRawConnection, is_initiator: bool, peer_id: ID | None = None
    ) -> ISecureConn:
        """Secure `raw_conn`. Raises SecurityUpgradeFailure, also for who may not connect."""
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
        muxed = KeepaliveYamux(conn, peer_id, keepalive=self._keepalive, of_all=self._unread)
        host, _port = muxed.get_remote_address() or ("", 0)
        self._unread.joined(muxed, network=prefix_of(host), held=muxed.unread_bytes)
        muxed.keep_to(self.pace(source_of(muxed), trio.current_time()))
        return muxed

    def pace(self, source: str, now: float) -> BucketGroup:
        """Return the pace of streams of a connection from `source` that begins."""
        return self._paces.get((source, str(next(self._numbers))), now)

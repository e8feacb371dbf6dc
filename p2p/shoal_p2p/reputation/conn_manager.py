"""Disconnects peers when all slots are taken, so that newcomers can still connect.

    above the limit, or a newcomer refused for lack of a slot
        └─▶ picks the longest connected peer that was served, except the better half
              └─▶ is sent FULL ─▶ is disconnected ─▶ may return after about a minute

A newcomer stays until it has received the manifest and a list of peers, or for five seconds. Then
it can connect elsewhere.
"""

from __future__ import annotations

import ipaddress
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from shoal_base.waits import MINUTE_S
from shoal_p2p.events import EventSink, NodeCounters, PeerDropped, PeerRefused
from shoal_p2p.log_throttle import LogThrottle
from shoal_p2p.net.address import host_and_port, is_circuit
from shoal_p2p.net.connections import ConnectionInfo, Direction
from shoal_p2p.net.inbound_gate import ip_of
from shoal_p2p.net.interface import Host
from shoal_p2p.net.request import RequestError
from shoal_wire.limits import FULL_PROTOCOL
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

STAY_SECONDS = 5.0
"""Minimum lifetime of a connection, unless the peer has received what a newcomer needs."""
_NEEDED_RESPONSES = 2
"""Distinct responses that a newcomer needs: the manifest, and a list of peers."""
_KEPT_RANK = 1.0
"""Peers at or above this rank may stay longer than others. A guess: twenty seconds of first
deliveries."""
_FIRST_SECONDS = 2 * STAY_SECONDS
"""Time during which a newcomer is not displaced by a later one (a guess)."""
_NEWCOMERS_SHARE = 0.25
"""Share of the slots for newcomers; above it newcomers only displace each other. A guess."""
_CHECK_SECONDS = STAY_SECONDS / 10
"""Time between checks while there are too many connections (a guess)."""
_PRESSED_SECONDS = 2.0
"""Seconds after a refused newcomer during which half of the slots are cleared, and the limit for
sending FULL to a peer: one that does not receive it is back within 0.5 s. A guess."""


def max_peers_for(max_connections: int) -> int:
    """Return how many peers may stay; the other slots, two if possible, are for newcomers."""
    return max_connections - max(max_connections // 8, min(2, max_connections // 2))


def least_useful(
    connections: Sequence[ConnectionInfo], rank: Mapping[PeerId, float], *, max_peers: int
) -> ConnectionInfo:
    """Return the connection to close when a slot is needed. Pure.

    Newcomers never displace a peer with a rank above 0. Idle newcomers may use a share of the
    slots; within it, one displaces the peer that has been connected longest without being useful.
    Above that share, the network with the most newcomers loses one: the longest connected, or the
    last to arrive while none has had ten seconds.
    """

    def is_idle_newcomer(c: ConnectionInfo) -> bool:
        return c.opened_s < MINUTE_S and rank[c.peer_id] == 0

    newcomers = [c for c in connections if is_idle_newcomer(c)]
    others = [c for c in connections if not is_idle_newcomer(c)]
    useless = [c for c in others if rank[c.peer_id] <= 0]
    if any(rank[c.peer_id] < 0 for c in useless):
        return min(useless, key=lambda c: (rank[c.peer_id], -c.opened_s))
    if useless and len(newcomers) <= max(1, max_peers * _NEWCOMERS_SHARE):
        crowd = _crowds(others)
        return max(useless, key=lambda c: (crowd[c.network or c.peer_id], c.opened_s))
    if newcomers:
        crowd = _crowds(newcomers)
        most = max(crowd.values())
        crowded = [c for c in newcomers if crowd[c.network or c.peer_id] == most]
        had_time = [c for c in crowded if c.opened_s >= _FIRST_SECONDS]
        if had_time:
            return max(had_time, key=lambda c: c.opened_s)
        return min(crowded, key=lambda c: c.opened_s)
    return min(connections, key=lambda c: (rank[c.peer_id], -c.opened_s))


def _crowds(connections: Iterable[ConnectionInfo]) -> Counter[str]:
    """Count connections by network; a local peer is its own network."""
    return Counter(c.network or c.peer_id for c in connections)


class ConnRating(Protocol):
    """Rates connections to peers."""

    def rank(self, peer_id: PeerId) -> float:
        """Return how valuable a connection to this peer is."""

    def is_protected(self, peer_id: PeerId) -> bool:
        """Return whether this peer is never disconnected for another."""


class ConnManager:
    """Keeps connection slots free. Start with ``await nursery.start(conn_manager.run)``."""

    def __init__(
        self,
        *,
        host: Host,
        max_peers: int,
        rating: ConnRating,
        is_relayed: Callable[[PeerId], bool] = lambda _peer: False,
        events: EventSink | None = None,
    ) -> None:
        """`is_relayed` is true for peers that use this relay."""
        self._host = host
        self._max_peers = max_peers
        self._rating = rating
        self._is_relayed = is_relayed
        self._events = events or EventSink()
        self._leaving: dict[PeerId, None] = {}
        self._responses: dict[PeerId, set[str]] = {}
        self._nursery: trio.Nursery | None = None
        self._is_over = trio.Event()
        self._checked_at = self._refused_at = -math.inf
        self._quiet = LogThrottle()
        self.full_at: float | None = None
        """Time when a peer was last disconnected or refused."""
        host.add_peer_callbacks(connected=self._on_connected, disconnected=self._on_gone)
        host.set_full_callback(self._on_full)

    @property
    def counters(self) -> NodeCounters:
        """The counts of peers that were disconnected and refused, among others."""
        return self._events.counters

    def record_response(self, peer_id: PeerId, protocol_id: str) -> None:
        """Record that a peer received the manifest or the peer list."""
        self._responses.setdefault(peer_id, set()).add(protocol_id)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Disconnect surplus peers until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                await self._is_over.wait()
                await trio.sleep(_CHECK_SECONDS)
                self._make_room()

    def _on_connected(self, peer_id: PeerId) -> None:
        self._leaving.pop(peer_id, None)
        self._make_room()

    def _on_gone(self, peer_id: PeerId) -> None:
        self._leaving.pop(peer_id, None)
        self._responses.pop(peer_id, None)

    def _on_full(self, network: str) -> None:
        """A newcomer was refused: all slots, or all slots of its network, are taken."""
        self._events.emit(PeerRefused(network=network))
        if not network:  # a network that exceeds its own share must not halve the limit for others
            self._refused_at = trio.current_time()
        self._note_full()
        if trio.current_time() - self._checked_at < _CHECK_SECONDS / 5:
            return
        self._checked_at = trio.current_time()
        if network:
            self._make_room_in(network)
        else:
            self._make_room()

    def _make_room(self) -> None:
        surplus = len(self._host.connected_peers() - self._leaving.keys()) - self._bound()
        if surplus <= 0:
            if self._is_over.is_set():
                self._is_over = trio.Event()
            return
        self._is_over.set()
        staying = [c for c in self._host.connections() if c.peer_id not in self._leaving]
        for peer_id in self._choose(staying, surplus):
            self._disconnect(peer_id)

    def _bound(self) -> int:
        """Return how many may stay: half while newcomers are refused."""
        pressed = trio.current_time() - self._refused_at < _PRESSED_SECONDS
        return max(1, self._max_peers // 2) if pressed else self._max_peers

    def _make_room_in(self, network: str) -> None:
        of_network = [c for c in self._host.connections() if _is_in(c, network)]
        if not any(c.peer_id in self._leaving for c in of_network):
            for peer_id in self._choose(of_network, 1):
                self._disconnect(peer_id)

    def _choose(self, connections: Sequence[ConnectionInfo], count: int) -> list[PeerId]:
        """Return up to `count` peers to disconnect."""
        free = [c for c in connections if not self._rating.is_protected(c.peer_id)]
        worth = {c.peer_id: self._rating.rank(c.peer_id) for c in free}

        def worth_keeping(connection: ConnectionInfo) -> tuple[bool, float, bool]:
            chosen = connection.direction is Direction.OUT
            return self._is_relayed(connection.peer_id), worth[connection.peer_id], chosen

        # Half of the useful ones stay; otherwise only peers that reconnect all the time remain.
        good = [c for c in free if (w := worth_keeping(c))[0] or w[2] or w[1] >= _KEPT_RANK]
        good.sort(key=worth_keeping, reverse=True)
        kept = good[: min(self._max_peers, len(connections)) // 2]
        kept_ids = {c.peer_id for c in kept}
        may_go = [c for c in free if c.peer_id not in kept_ids and self._has_stayed(c)]
        found: list[PeerId] = []
        while may_go and len(found) < count:
            least = least_useful(may_go, worth, max_peers=self._max_peers)
            may_go.remove(least)
            found.append(least.peer_id)
        return found

    def _has_stayed(self, connection: ConnectionInfo) -> bool:
        answered = self._responses.get(connection.peer_id, ())
        return connection.opened_s >= STAY_SECONDS or len(answered) >= _NEEDED_RESPONSES

    def _disconnect(self, peer_id: PeerId) -> None:
        self._events.emit(PeerDropped(peer_id=peer_id))
        self._note_full()
        self._leaving[peer_id] = None
        log.debug("full: disconnecting %s", peer_id)
        if self._nursery is None:
            self._host.abort(peer_id)
        else:
            self._nursery.start_soon(self._notify_and_disconnect, peer_id)

    async def _notify_and_disconnect(self, peer_id: PeerId) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notify, peer_id, notified := trio.Event())
            with trio.move_on_after(_PRESSED_SECONDS):
                await notified.wait()
            # Do not wait for the request's task: closing its stream may take longer.
            if peer_id in self._leaving:
                self._host.abort(peer_id)
                await self._host.disconnect(peer_id)  # frees its slot before its tasks have ended

    async def _notify(self, peer_id: PeerId, notified: trio.Event) -> None:
        try:
            await self._host.request(
                peer_id, FULL_PROTOCOL, b"", max_response_bytes=64, timeout=_PRESSED_SECONDS
            )
        except RequestError as error:  # it has left, or does not know the protocol
            log.debug("disconnecting %s without FULL: %s", peer_id, error)
        finally:
            notified.set()

    def _note_full(self) -> None:
        """Log that this peer is full, throttled."""
        self.full_at = trio.current_time()
        if not self._quiet.may_say(self.full_at):
            return
        log.warning(
            "full: %d peers connected; since the start %d were disconnected to free a slot and %d "
            "newcomers refused for now; raise --max-connections or start another bootstrap",
            len(self._host.connected_peers()),
            self.counters.peers_dropped,
            self.counters.peers_refused,
        )


def _is_in(connection: ConnectionInfo, network: str) -> bool:
    """Return whether this is a direct inbound connection from `network`."""
    at = connection.address
    if connection.direction is not Direction.IN or not at or is_circuit(at):
        return False
    address = ip_of(host_and_port(at)[0])
    return address is not None and address in ipaddress.ip_network(network)

"""Chooses the peer to disconnect when all slots are taken, so that no newcomer is locked out.

    over the bound, or a newcomer refused for want of a slot
        └─▶ the longest here of those who have been answered, the better half apart
              └─▶ learns that this peer is full ─▶ is cut ─▶ may return after about a minute

A newcomer stays until it has received the manifest and a list of peers, or for five seconds. Then
it can connect elsewhere.
"""

from __future__ import annotations

import ipaddress
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from shoal_base.waits import MINUTE_S
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
"""Time that every connection has to ask for what a newcomer needs; less, once it is answered."""
_NEEDED_ANSWERS = 2
"""Different answers after which a newcomer has what it came for: the manifest, and other peers."""
_KEPT_RANK = 1.0
"""Peers at or above this rank may be kept although others here have stayed less long. A guess:
twenty seconds' first deliveries."""
_FIRST_SECONDS = 2 * STAY_SECONDS
"""Time in which no newcomer is cut for a later one (a guess)."""
_NEWCOMERS_SHARE = 0.25
"""Share of the places for newcomers; above it they compete with each other alone. A guess."""
_LOOK_SECONDS = STAY_SECONDS / 10
"""Time between two looks while there are too many (a guess)."""
_PRESSED_SECONDS = 2.0
"""Seconds after a refused newcomer in which only half of the places are kept, and most time for
telling a peer that it is let go: one that is not told is back within 0.5 s. A guess."""


def seats_of(max_connections: int) -> int:
    """Return how many peers may stay: the rest of the slots is for newcomers, two if possible."""
    return max_connections - max(max_connections // 8, min(2, max_connections // 2))


def least_useful(
    connections: Sequence[ConnectionInfo], rank: Mapping[PeerId, float], *, max_peers: int
) -> ConnectionInfo:
    """Return whom to cut when a place is needed. Pure.

    Newcomers displace nobody of a rank above 0. Those that have brought nothing yet may have a
    share of the places: for one of them the peer goes that has been here longest for nothing. Above
    their share the network with most of them gives one up: of its newcomers the longest idle, or
    the last to come while none has had ten seconds.
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
    """Count by network; one of this machine is a network of its own."""
    return Counter(c.network or c.peer_id for c in connections)


class ConnManager:
    """Keeps slots free. Start with ``await nursery.start(room.run)``."""

    def __init__(
        self,
        *,
        host: Host,
        max_peers: int,
        rank: Callable[[PeerId], float],
        is_protected: Callable[[PeerId], bool],
        is_guest: Callable[[PeerId], bool] = lambda _peer: False,
        on_let_go: Callable[[PeerId], None] = lambda _peer: None,
    ) -> None:
        """`is_guest` tells peers reached through this one; `on_let_go` learns of each that goes."""
        self._host = host
        self._max_peers = max_peers
        self._rank = rank
        self._is_protected = is_protected
        self._is_guest = is_guest
        self._on_let_go = on_let_go
        self._leaving: dict[PeerId, None] = {}
        self._answered: dict[PeerId, set[str]] = {}
        self._nursery: trio.Nursery | None = None
        self._is_over = trio.Event()
        self._looked_at = self._refused_at = -math.inf
        self._quiet = LogThrottle()
        self.num_let_go = 0
        """Peers that made room, since the start."""
        self.num_refused = 0
        """Newcomers that found no slot free, since the start."""
        self.full_at: float | None = None
        """Time when a peer last had to go, or was refused."""
        host.add_peer_callbacks(connected=self._on_connected, disconnected=self._on_gone)
        host.set_full_callback(self._on_full)

    def note_answered(self, peer_id: PeerId, protocol_id: str) -> None:
        """A peer was told what newcomers ask for: the manifest, or whom else there is."""
        self._answered.setdefault(peer_id, set()).add(protocol_id)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let go of who must, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                await self._is_over.wait()
                await trio.sleep(_LOOK_SECONDS)
                self._make_room()

    def _on_connected(self, peer_id: PeerId) -> None:
        self._leaving.pop(peer_id, None)
        self._make_room()

    def _on_gone(self, peer_id: PeerId) -> None:
        self._leaving.pop(peer_id, None)
        self._answered.pop(peer_id, None)

    def _on_full(self, network: str) -> None:
        """A newcomer was refused: all slots are taken, or all that its network may have."""
        self.num_refused += 1
        if not network:  # or who fills its own share would halve the house for everybody
            self._refused_at = trio.current_time()
        self._note_full()
        if trio.current_time() - self._looked_at < _LOOK_SECONDS / 5:
            return
        self._looked_at = trio.current_time()
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
        for victim in self._whom(staying, surplus):
            self._let_go(victim)

    def _bound(self) -> int:
        """Return how many may stay: while newcomers find no slot, only the better half."""
        pressed = trio.current_time() - self._refused_at < _PRESSED_SECONDS
        return max(1, self._max_peers // 2) if pressed else self._max_peers

    def _make_room_in(self, network: str) -> None:
        of_network = [c for c in self._host.connections() if _is_in(c, network)]
        if not any(c.peer_id in self._leaving for c in of_network):
            for victim in self._whom(of_network, 1):
                self._let_go(victim)

    def _whom(self, connections: Sequence[ConnectionInfo], count: int) -> list[PeerId]:
        """Return the `count` that go, or as many as may."""
        free = [c for c in connections if not self._is_protected(c.peer_id)]
        worth = {c.peer_id: self._rank(c.peer_id) for c in free}

        def worth_keeping(connection: ConnectionInfo) -> tuple[bool, float, bool]:
            chosen = connection.direction is Direction.OUT
            return self._is_guest(connection.peer_id), worth[connection.peer_id], chosen

        # Not everybody: else those who come and go all the time were the only ones here.
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
        answered = self._answered.get(connection.peer_id, ())
        return connection.opened_s >= STAY_SECONDS or len(answered) >= _NEEDED_ANSWERS

    def _let_go(self, peer_id: PeerId) -> None:
        self.num_let_go += 1
        self._note_full()
        self._leaving[peer_id] = None
        self._on_let_go(peer_id)
        log.debug("full: %s makes room", peer_id)
        if self._nursery is None:
            self._host.abort(peer_id)
        else:
            self._nursery.start_soon(self._say_and_cut, peer_id)

    async def _say_and_cut(self, peer_id: PeerId) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._say, peer_id, told := trio.Event())
            with trio.move_on_after(_PRESSED_SECONDS):
                await told.wait()
            # Not after the request's own end: closing its stream may take longer than the wait.
            if peer_id in self._leaving:
                self._host.abort(peer_id)
                await self._host.disconnect(peer_id)  # its slot is free before its tasks have ended

    async def _say(self, peer_id: PeerId, told: trio.Event) -> None:
        try:
            await self._host.request(
                peer_id, FULL_PROTOCOL, b"", max_response_bytes=64, timeout=_PRESSED_SECONDS
            )
        except RequestError as error:  # it went by itself, or its version knows no such word
            log.debug("%s is let go untold: %s", peer_id, error)
        finally:
            told.set()

    def _note_full(self) -> None:
        """Say that it is full, now and then."""
        self.full_at = trio.current_time()
        if not self._quiet.may_say(self.full_at):
            return
        log.warning(
            "full: %d peers connected; since the start %d were let go to make room and %d "
            "newcomers refused for now; raise --max-connections or start another bootstrap",
            len(self._host.connected_peers()),
            self.num_let_go,
            self.num_refused,
        )


def _is_in(connection: ConnectionInfo, network: str) -> bool:
    """Return whether a connection came in from `network` by itself, through no relay."""
    at = connection.address
    if connection.direction is not Direction.IN or not at or is_circuit(at):
        return False
    address = ip_of(host_and_port(at)[0])
    return address is not None and address in ipaddress.ip_network(network)

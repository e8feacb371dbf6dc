"""Keeps a node that peers cannot dial reachable through relays among them.

auto: peers try to dial us ─▶ few could  ─▶ reserve at two relays ─▶ announce circuit addresses
                         └──▶ most could ─▶ nothing to do, check again later

The reports are unverified. A liar must not make a node give up relays that it needs, and an
unnecessary relay costs little. So networks vote, and if they disagree the relays stay.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import trio

from shoal_base.waits import HOUR_S, MINUTE_S, REPLY_S, RETRY_S
from shoal_p2p.net.address import is_circuit
from shoal_p2p.net.circuit import (
    CIRCUIT,
    HOP,
    STOP,
    ReservationReply,
    accept_circuit,
    reserve,
)
from shoal_p2p.net.connections import ConnectionInfo
from shoal_p2p.net.host import Direction, Libp2pHost
from shoal_p2p.net.streams import Stream
from shoal_p2p.peers.outside import AGAIN_S, ReachabilityReport, ask_each, tcp_ports
from shoal_p2p.peers.witnesses import MAX_WITNESSES, most_say_so, outsiders, witnesses
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

MAX_RELAYS = 2
"""Reservations of a node that cannot be dialled: one relay may disappear at any time."""
_MAX_ADDRESSES = MAX_ADDRS_PER_PEER // MAX_RELAYS
"""Most addresses through one relay that are announced."""
_IDENTIFY_S = 0.1


class RelayUse(StrEnum):
    """Setting that says when a node uses relays to be reachable."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A reservation at a relay."""

    renew_at: float
    addresses: tuple[str, ...]
    """This node's transport addresses through the relay."""


def unsolicited(
    answers: list[ReachabilityReport], connections: Iterable[ConnectionInfo], ports: Sequence[int]
) -> list[ReachabilityReport]:
    """Return the reports of peers that this node did not dial from `ports`; all if none are left.

    Some routers admit any port of a host to which that port has dialled.
    """
    prompted = {
        c.peer_id for c in connections if c.direction is Direction.OUT and c.local_port in ports
    }
    return [seen for seen in answers if seen.peer_id not in prompted] or answers


class RelayClient:
    """Reserves and renews relays. Start with ``nursery.start_soon(client.run)``, after the host."""

    def __init__(
        self,
        *,
        host: Libp2pHost,
        use: RelayUse = RelayUse.AUTO,
        preferred: tuple[PeerId, ...] = (),
        rng: random.Random | None = None,
    ) -> None:
        """`preferred` are asked first, to dial us and to relay: the bootstraps."""
        self._rng = rng or random.Random()
        self._host = host
        self._use = use
        self._preferred = preferred
        self._reservations: dict[PeerId, Reservation] = {}
        self._not_before: dict[PeerId, float] = {}
        self._ask_at = 0.0
        self._changed = trio.Event()
        self.reachable: bool | None = None
        """True if peers could dial us; None while unknown."""
        host.add_peer_callbacks(disconnected=self._on_disconnected)

    @property
    def relays(self) -> tuple[PeerId, ...]:
        """The relays at which this node has a reservation."""
        return tuple(self._reservations)

    def look_again(self) -> None:
        """Check again whether peers can dial this node, because something has changed."""
        self._changed.set()

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check reachability, reserve and renew, until cancelled."""
        self._host.serve_streams(STOP, self._accept)
        task_status.started()
        if self._use is RelayUse.OFF:
            return
        while True:
            if self._use is RelayUse.AUTO and trio.current_time() >= self._ask_at:
                await self._check_reachability()
            if self._use is RelayUse.ON or self.reachable is False:
                await self._reserve_where_needed()
            with trio.move_on_after(self._pause_s()):
                await self._changed.wait()
            if self._changed.is_set():  # perhaps during the check, which then saw the old state
                self._changed = trio.Event()
                self._ask_at = 0.0

    def _pause_s(self) -> float:
        if self._use is RelayUse.ON or self.reachable is False:
            return RETRY_S
        return max(RETRY_S, self._ask_at - trio.current_time())

    # Reachable?

    async def _check_reachability(self) -> None:
        ports = tcp_ports(self._host.listen_addrs())
        connections = self._host.connections()
        reports_received = await ask_each(self._host, self._witnesses(connections), ports=ports)
        answers = [seen for seen in reports_received if seen.dialled]
        if not answers:
            return
        answers = unsolicited(answers, connections, ports)
        reports = outsiders({s.peer_id: bool(s.open_ports) for s in answers}, connections)
        before, self.reachable = self.reachable, most_say_so(reports, connections)
        self._ask_at = trio.current_time() + AGAIN_S
        if self.reachable and self._reservations:
            logger.info("peers can dial this node: it no longer needs its relays")
            self._reservations.clear()
            self._announce()
        if before is not False and self.reachable is False:
            logger.info("peers cannot dial this node: looking for relays among them")

    def _witnesses(self, connections: Sequence[ConnectionInfo]) -> list[PeerId]:
        """Return the peers to ask: the preferred, then others from as many networks as possible."""
        direct = [c for c in connections if not is_circuit(c.address)]
        preferred = [c.peer_id for c in direct if c.peer_id in self._preferred][:MAX_WITNESSES]
        return list(dict.fromkeys([*preferred, *witnesses(direct, self._rng)]))

    def _candidates(self) -> list[PeerId]:
        """Directly connected peers, the preferred first."""
        direct = [c.peer_id for c in self._host.connections() if not is_circuit(c.address)]
        preferred = [peer_id for peer_id in self._preferred if peer_id in direct]
        return list(dict.fromkeys([*preferred, *direct]))

    # Reservations

    async def _reserve_where_needed(self) -> None:
        now = trio.current_time()
        for peer_id, reservation in list(self._reservations.items()):
            if reservation.renew_at <= now:
                await self._reserve(peer_id)
        for peer_id in self._candidates():
            if len(self._reservations) >= MAX_RELAYS:
                return
            if peer_id not in self._reservations and self._not_before.get(peer_id, 0.0) <= now:
                await self._reserve(peer_id)

    async def _reserve(self, peer_id: PeerId) -> None:
        try:
            with trio.fail_after(REPLY_S):
                stream = await self._host.open_stream(peer_id, HOP)
                reply = await reserve(stream, peer_id)
        except Exception as error:  # noqa: BLE001 - not a relay, gone, or an invalid reply
            logger.debug("no reservation at %s: %r", peer_id, error)
            self._forget(peer_id)
            return
        seconds = max(MINUTE_S, min(HOUR_S, reply.seconds))
        first = peer_id not in self._reservations
        self._reservations[peer_id] = Reservation(
            renew_at=trio.current_time() + seconds / 2,
            addresses=self._through(peer_id, reply),
        )
        self._announce()
        if first:
            await self._log_first(peer_id)

    async def _log_first(self, relay: PeerId) -> None:
        # What software it runs may arrive after the reservation.
        with trio.move_on_after(REPLY_S):
            while not self._is_identified(relay):  # noqa: ASYNC110 - identify sends no signal
                await trio.sleep(_IDENTIFY_S)
        if (reservation := self._reservations.get(relay)) is None:
            return
        if self._host.is_shoal_peer(relay):
            logger.info("reachable through relay %s", relay)
            return
        # Only a shoal relay lists its circuits to other nodes (`services.py`).
        address = next(iter(reservation.addresses), "its address there")
        logger.warning(
            "reachable through relay %s, which is not a shoal peer and announces no node: "
            "connect both ends to a common shoal peer, or start the other node with --bootstrap "
            "%s/p2p/%s",
            relay,
            address,
            self._host.peer_id,
        )

    def _is_identified(self, relay: PeerId) -> bool:
        return any(c.agent for c in self._host.connections() if c.peer_id == relay)

    def _through(self, relay: PeerId, reply: ReservationReply) -> tuple[str, ...]:
        """Return our addresses through the relay: where we dialled it, then those it reports."""
        dialled = [
            c.address
            for c in self._host.connections()
            if c.peer_id == relay and c.direction is Direction.OUT
        ]
        at = dict.fromkeys((*dialled, *reply.addresses))
        return tuple(f"{address}/p2p/{relay}{CIRCUIT}" for address in at)[:_MAX_ADDRESSES]

    def _forget(self, peer_id: PeerId) -> None:
        self._not_before[peer_id] = trio.current_time() + MINUTE_S
        if self._reservations.pop(peer_id, None):
            self._announce()

    def _on_disconnected(self, peer_id: PeerId) -> None:
        self._not_before.pop(peer_id, None)
        if self._reservations.pop(peer_id, None):
            logger.info("relay %s is gone", peer_id)
            self._announce()

    def _announce(self) -> None:
        reservations = self._reservations.values()
        self._host.announced.relayed = tuple(a for one in reservations for a in one.addresses)

    # Inbound circuits

    async def _accept(self, relay: PeerId, stream: Stream) -> None:
        """Accept a circuit from a relay with our reservation; ends with the connection."""
        reservation = self._reservations.get(relay)
        if await accept_circuit(stream, is_reserved=reservation is not None):
            at = reservation.addresses if reservation is not None else ()
            await self._host.serve_circuit(stream, next(iter(at), f"/p2p/{relay}{CIRCUIT}"))

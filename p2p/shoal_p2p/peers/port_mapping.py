"""Asks the router to forward this node's listen port, and peers to try it.

    only private addresses here ─▶ router found ─▶ forwards ─▶ most peers can connect  ─▶ announced
                 │ no                   │ no           │                       │ few do
                 ▼                      ▼              ▼                       ▼
             not asked                  └── again in ten minutes          not announced

It needs the extra `reach`; without it, the node logs that the router is not asked.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

import trio

from shoal_base.waits import HOUR_S, MINUTE_S, SHORT_DEADLINE_S
from shoal_p2p.net.address import host_and_port, is_circuit
from shoal_p2p.net.connections import ConnectionInfo
from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.net.inbound_gate import ip_of
from shoal_p2p.net.private_networks import LOOPBACK, private_network_of
from shoal_p2p.peers.outside import AGAIN_S, DIAL_PAUSE_S, ReachabilityReport, ask_each, tcp_ports
from shoal_p2p.peers.upnp import ANSWER_S, Forwarded, RouterError
from shoal_p2p.peers.upnp_client import UpnpClient, can_ask
from shoal_p2p.peers.witnesses import most_say_so, outsiders, witnesses

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

MISSING = "pip install 'shoal[reach]'"
_ROUTER_S = ANSWER_S + 1.0
"""Deadline of one request to the router, in seconds."""
_TRY_S = DIAL_PAUSE_S + 2.0
"""Pause between two reachability checks, in seconds."""
_MAX_TRIES = int(2 * MINUTE_S / _TRY_S)
"""Reachability checks after one answer of the router: two minutes, in which peers connect."""


class MappingState(StrEnum):
    """Progress of asking the router to forward this node's port."""

    NEEDLESS = "needless"
    """Not asked: off, this machine has a public address, or it listens on loopback only."""
    NONE = "none"
    """No router has answered, or none forwards."""
    UNTRIED = "untried"
    """A router forwards, and no peer has tried yet."""
    REACHED = "reached"
    """Peers of most networks that tried could connect through it."""
    SHUT = "shut"
    """Peers tried, and most could not connect."""


class PortMapping:
    """Keeps a port of the router forwarded. Start with ``await nursery.start(mapping.run)``."""

    def __init__(
        self,
        *,
        host: Libp2pHost,
        wanted: bool = True,
        router: UpnpClient | None = None,
        on_reached: Callable[[], None] = lambda: None,
        rng: random.Random | None = None,
    ) -> None:
        """`on_reached` is called when peers have connected through the mapping."""
        self._host = host
        self._wanted = wanted
        self._router = router or UpnpClient()
        self._on_reached = on_reached
        self._rng = rng or random.Random()
        self.state = MappingState.NEEDLESS
        self.forwarded: Forwarded | None = None
        self.error = ""
        """The router's error if none forwards; empty if one does."""

    @property
    def place(self) -> str:
        """The router's transport address that leads here, as it reports; empty for none."""
        return _place(self.forwarded) if self.forwarded is not None else ""

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Request, renew and test the mapping until cancelled; then remove it."""
        task_status.started()
        if not self._wanted:
            return
        try:
            while True:
                port = self._port()
                if port is not None and not can_ask():
                    logger.warning("the router is not asked to forward a port: %s", MISSING)
                    self.error = MISSING
                    self._set_state(MappingState.NONE)
                    return
                if port is not None:
                    await self._ask(port)
                with trio.move_on_after(self._next_s()):
                    await self._try_from_outside()
                    await trio.sleep_forever()
        finally:
            await self._forget()

    def _port(self) -> int | None:
        """Return the port to forward; None if that is of no use."""
        own = [a.rpartition("/p2p/")[0] for a in self._host.interface_addrs()]
        networks = {
            a: private_network_of(host_and_port(a)[0]) for a in own if a.startswith("/ip4/")
        }
        behind = [a for a, network in networks.items() if network not in (None, LOOPBACK)]
        if None in networks.values() or self._host.announced.configured:
            return None
        return next(iter(tcp_ports(behind)), None)

    def _next_s(self) -> float:
        lasts_s = HOUR_S if self.forwarded is None else self.forwarded.lease_s
        return min(AGAIN_S, lasts_s / 2)

    async def _ask(self, port: int) -> None:
        found: Forwarded | None = None
        try:
            with trio.fail_after(_ROUTER_S):
                found = await self._router.forward(port, HOUR_S)
            self.error = ""
        except (RouterError, trio.TooSlowError) as error:
            self.error = str(error) or f"no answer in {_ROUTER_S:g} s"
            logger.debug("no router forwards a port: %s", self.error)
        before, self.forwarded = self.forwarded, found
        if found is None:
            self._set_state(MappingState.NONE)
        elif before is None or _place(before) != _place(found):
            self._set_state(MappingState.UNTRIED)
            logger.info("the router forwards %s to this node", _place(found))

    async def _try_from_outside(self) -> None:
        """Have peers try the port until most can connect: a router's own report is no proof."""
        if self.forwarded is None or self.state is MappingState.REACHED:
            return
        for _ in range(_MAX_TRIES):
            connections = self._host.connections()
            answers = [seen for seen in await self._look(connections) if seen.dialled]
            reports = outsiders({s.peer_id: self._has_reached(s) for s in answers}, connections)
            if most_say_so(reports, connections):
                self._set_state(MappingState.REACHED)
                return
            if answers:
                self._set_state(MappingState.SHUT)
            await trio.sleep(_TRY_S)

    async def _look(self, connections: Iterable[ConnectionInfo]) -> list[ReachabilityReport]:
        assert self.forwarded is not None
        ports = (self.forwarded.port,)
        direct = [c for c in connections if not is_circuit(c.address)]
        return await ask_each(self._host, witnesses(direct, self._rng), ports=ports)

    def _has_reached(self, seen: ReachabilityReport) -> bool:
        """Return whether a peer connected at exactly the address that the router reports."""
        assert self.forwarded is not None
        at = ip_of(host_and_port(seen.observed)[0]) if seen.observed else None
        return bool(seen.open_ports) and at is not None and at == ip_of(self.forwarded.host)

    def _set_state(self, state: MappingState) -> None:
        self.state = state
        is_reached = state is MappingState.REACHED
        self._host.announced.forwarded = (self.place,) if is_reached else ()
        if is_reached:
            logger.info("peers can connect at %s: announced", self.place)
            self._on_reached()

    async def _forget(self) -> None:
        if self.forwarded is None:
            return
        self._set_state(MappingState.NONE)
        with trio.move_on_after(SHORT_DEADLINE_S) as scope:
            scope.shield = True
            try:
                await self._router.forget()
            except RouterError as error:
                logger.debug("the router does not remove the port mapping: %s", error)


def _place(forwarded: Forwarded) -> str:
    return f"/ip4/{forwarded.host}/tcp/{forwarded.port}"

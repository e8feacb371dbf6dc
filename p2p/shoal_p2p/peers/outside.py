"""Asks peers for this node's address and reachability, and answers theirs (`/shoal/reach/1`).

The responder opens a TCP connection to the observed address of the requester and closes it at once,
so no peer can be made to dial a third party. Bounded: a few concurrent dials, and one per peer in
ten seconds; a repeated request within that time gets the same answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.waits import LATELY_S
from shoal_p2p.net.address import host_and_port, is_circuit, parse_transport
from shoal_p2p.net.host import RequestError
from shoal_p2p.net.inbound_gate import ip_of
from shoal_p2p.net.interface import DIALS_AT_ONCE, Host
from shoal_wire.errors import RemoteError
from shoal_wire.reach import (
    MAX_PORTS,
    MAX_REACH_BYTES,
    REACH_PROTOCOL,
    ReachReply,
    decode_reach_reply,
    decode_reach_request,
    encode_reach_reply,
    encode_reach_request,
)
from shoal_wire.types import PeerId

log = logging.getLogger(__name__)

AGAIN_S = LATELY_S
"""Pause between two checks of this node's reachability, in seconds."""
_DIAL_SECONDS = 2.0
"""Deadline for dialling a requester, in seconds: a firewalled port never answers."""
_ASK_SECONDS = 2 * _DIAL_SECONDS
"""Deadline for a reply, in seconds: the responder's dial and the round trip."""
DIAL_PAUSE_S = 10.0
"""Pause between two dials for one requester, in seconds, against use as a port scanner."""


def wall_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachabilityReport:
    """One peer's answer about this node."""

    peer_id: PeerId
    observed: str
    """This node's transport address as the peer sees it; empty if it does not know."""
    open_ports: tuple[int, ...]
    dialled: bool
    """True if the peer tried to connect to the requested ports."""
    clock_ahead_ms: int
    """The peer's clock minus ours, minus the time that the reply took to arrive."""


@dataclass(slots=True, kw_only=True)
class _LastDial:
    """The last dial for one peer."""

    at: float
    ports: tuple[int, ...]
    open: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class ReachServer:
    """Answers the reachability requests of peers."""

    host: Host
    wall_ms: Callable[[], int] = wall_ms
    _last: BoundedDict[PeerId, _LastDial] = field(default_factory=BoundedDict)
    _dialling: int = 0

    def serve(self) -> None:
        """Start answering."""
        self.host.set_request_handler(
            REACH_PROTOCOL, self.answer, max_request_bytes=MAX_REACH_BYTES
        )

    async def answer(self, peer_id: PeerId, request: bytes) -> bytes:
        """Answer one request. Raises RemoteError, which resets the stream."""
        ports = decode_reach_request(request)
        observed = _address_of(self.host, peer_id)
        found = await self._try(peer_id, observed, ports) if ports and observed else None
        return encode_reach_reply(
            ReachReply(
                observed=observed,
                # Read after dialling, which would otherwise look like a slow clock.
                wall_ms=self.wall_ms(),
                open_ports=found or (),
                dialled=found is not None,
            )
        )

    async def _try(
        self, peer_id: PeerId, observed: str, ports: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        """Return the open ports, tried now or just before; None if no dial is allowed."""
        now = trio.current_time()
        last = self._last.get(peer_id)
        if last is not None and now - last.at < DIAL_PAUSE_S:
            known = set(ports) <= set(last.ports)
            return tuple(port for port in ports if port in last.open) if known else None
        if self._dialling >= DIALS_AT_ONCE:
            return None
        answer = self._last[peer_id] = _LastDial(at=now, ports=ports, open=())
        answer.open = await self._dial(host_and_port(observed)[0], ports)
        # The peer may use a port mapping of its router, which this has verified.
        network = observed.rpartition("/")[0]
        self.host.add_verified_addresses(peer_id, [f"{network}/{port}" for port in answer.open])
        return answer.open

    async def _dial(self, address: str, ports: tuple[int, ...]) -> tuple[int, ...]:
        found: list[int] = []

        async def try_port(port: int) -> None:
            if await is_open(address, port):
                found.append(port)

        self._dialling += 1
        try:
            async with trio.open_nursery() as nursery:
                for port in ports:
                    nursery.start_soon(try_port, port)
        finally:
            self._dialling -= 1
        return tuple(sorted(found))


def tcp_ports(addresses: Iterable[str]) -> tuple[int, ...]:
    """Return the TCP ports in a node's own full addresses, at most four."""
    parts = [address.split("/") for address in addresses if not is_circuit(address)]
    found = (int(part[4]) for part in parts if len(part) > 4 and part[3] == "tcp")
    return tuple(dict.fromkeys(found))[:MAX_PORTS]


async def is_open(address: str, port: int) -> bool:
    """True if a TCP connection to a literal IP address can be opened within two seconds."""
    try:
        with trio.fail_after(_DIAL_SECONDS):
            stream = await trio.open_tcp_stream(address, port)
            await stream.aclose()
    except (OSError, trio.TooSlowError):
        return False
    return True


async def ask_outside(
    host: Host,
    peer_id: PeerId,
    *,
    ports: tuple[int, ...] = (),
    wall_ms: Callable[[], int] = wall_ms,
) -> ReachabilityReport | None:
    """Ask one connected peer; None without a usable reply in time."""
    try:
        raw = await host.request(
            peer_id,
            REACH_PROTOCOL,
            encode_reach_request(ports),
            max_response_bytes=MAX_REACH_BYTES,
            timeout=_ASK_SECONDS,
        )
        reply = decode_reach_reply(raw)
    except (RequestError, RemoteError) as error:
        log.debug("no reachability report from %s: %s", peer_id, error)
        return None
    return ReachabilityReport(
        peer_id=peer_id,
        observed=_clean(reply.observed),
        open_ports=tuple(port for port in reply.open_ports if port in ports),
        dialled=reply.dialled,
        clock_ahead_ms=reply.wall_ms - wall_ms(),
    )


async def ask_each(
    host: Host,
    peers: Iterable[PeerId],
    *,
    ports: tuple[int, ...] = (),
    wall_ms: Callable[[], int] = wall_ms,
) -> list[ReachabilityReport]:
    """Ask connected peers one after another; return the usable answers."""
    answers = [await ask_outside(host, one, ports=ports, wall_ms=wall_ms) for one in peers]
    return [seen for seen in answers if seen is not None]


def _address_of(host: Host, peer_id: PeerId) -> str:
    """Return the remote address of a direct connection; empty if relayed or disconnected."""
    address = host.remote_address(peer_id)
    is_direct = address and not is_circuit(address)
    return address if is_direct and ip_of(host_and_port(address)[0]) is not None else ""


def _clean(observed: str) -> str:
    try:
        return parse_transport(observed)
    except ValueError:
        return ""

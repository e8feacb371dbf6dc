"""A host behind a router whose peers say how they see it; some of them lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import trio

from shoal_wire.reach import REACH_PROTOCOL, ReachReply, decode_reach_request, encode_reach_reply
from shoal_wire.types import PeerId
from tests.support.doubles.identities import fresh_identity
from tests.support.routed_host import RoutedHost

SEEN_OUTSIDE, SEEN_AT_HOME = "/ip4/9.9.9.9/tcp/50000", "/ip4/192.168.1.2/tcp/4001"


@dataclass(kw_only=True)
class Witness:
    """A peer that dials the ports in the request."""

    address: str
    """Where it is."""
    observed: str
    """Where it says that it sees the host."""
    open_ports: tuple[int, ...]
    """The ports that it says it gets in by."""


def outside(number: int, *open_ports: int, observed: str = SEEN_OUTSIDE) -> Witness:
    """Return a peer of a network of its own."""
    at = f"/ip4/11.88.{number}.1/tcp/1"
    return Witness(address=at, observed=observed, open_ports=open_ports)


def at_home(number: int, *open_ports: int, observed: str = SEEN_AT_HOME) -> Witness:
    """Return a peer behind the same router."""
    at = f"/ip4/192.168.1.{number}/tcp/1"
    return Witness(address=at, observed=observed, open_ports=open_ports)


def seen_by(*witnesses: Witness, takes_s: float = 0.0, **more: Any) -> RoutedHost:
    """Return a host with these peers; each takes that long to answer."""
    says = {fresh_identity().peer_id: one for one in witnesses}

    async def answer(peer_id: PeerId, question: bytes) -> bytes:
        await trio.sleep(takes_s)
        one = says[peer_id]
        reached = tuple(port for port in decode_reach_request(question) if port in one.open_ports)
        return encode_reach_reply(
            ReachReply(observed=one.observed, wall_ms=1, open_ports=reached, dialled=True)
        )

    host = RoutedHost(answers={REACH_PROTOCOL: answer}, **more)
    for peer_id, one in says.items():
        host.connect(peer_id, address=one.address)
    return host

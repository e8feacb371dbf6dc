"""Asks another peer how it sees this one (`/shoal/reach/1`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from shoal_wire.errors import RemoteError
from shoal_wire.fields import Wires
from shoal_wire.v1 import reach_pb2 as pb

REACH_PROTOCOL = "/shoal/reach/1"
MAX_REACH_BYTES = 1024
MAX_PORTS = 4
_MAX_ADDRESS_CHARS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachReply:
    """The asker as the other side sees it."""

    observed: str
    """Multiaddress of the asker, without a peer id; empty if unknown."""
    wall_ms: int
    """The answerer's wall clock."""
    open_ports: tuple[int, ...]
    """The asked ports that accepted a connection."""
    dialled: bool
    """False if it did not try."""


_REPLY = Wires().of(ReachReply)


def encode_reach_request(ports: Iterable[int]) -> bytes:
    """Return a request to be dialled on the first four of `ports`; none asks for no dial."""
    return pb.ReachRequest(ports=[*ports][:MAX_PORTS]).SerializeToString()


def decode_reach_request(raw: bytes) -> tuple[int, ...]:
    """Return the ports of a request. Raises RemoteError: malformed, too many, no port."""
    try:
        ports = tuple(pb.ReachRequest.FromString(raw).ports)
    except DecodeError:
        raise RemoteError("reach request does not parse") from None
    if len(ports) > MAX_PORTS or not all(0 < port < 65_536 for port in ports):
        raise RemoteError(f"reach request for ports {ports[:MAX_PORTS]}")
    return ports


def encode_reach_reply(reply: ReachReply) -> bytes:
    """Return the bytes of `reply`."""
    return pb.ReachReply(**_REPLY.write(reply)).SerializeToString()


def decode_reach_reply(raw: bytes) -> ReachReply:
    """Return a reply; an address that no terminal should show is left out.

    Raises:
        RemoteError: it does not parse, or names more ports than can have been asked for.
    """
    try:
        message = pb.ReachReply.FromString(raw)
    except DecodeError:
        raise RemoteError("reach reply does not parse") from None
    if len(message.open_ports) > MAX_PORTS:
        raise RemoteError("reach reply with too many ports")
    text = message.observed
    shown = len(text) <= _MAX_ADDRESS_CHARS and text.isascii() and text.isprintable()
    reply: ReachReply = _REPLY.read(message)
    return reply if shown else replace(reply, observed="")

"""Encodes reachability checks by another peer (`/shoal/reach/1`)."""

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
    """The requesting peer, as the responding peer sees it."""

    observed: str
    """Multiaddress of the requesting peer, without a peer id; empty if unknown."""
    wall_ms: int
    """The responding peer's wall clock, Unix time in milliseconds."""
    open_ports: tuple[int, ...]
    """The requested ports that accepted a connection."""
    dialled: bool
    """False if it did not dial at all."""


_REPLY = Wires().of(ReachReply)


def encode_reach_request(ports: Iterable[int]) -> bytes:
    """Encode a request to be dialled on the first four of `ports`; without ports, for no dial."""
    return pb.ReachRequest(ports=[*ports][:MAX_PORTS]).SerializeToString()


def decode_reach_request(raw: bytes) -> tuple[int, ...]:
    """Decode a request to its ports. Raises RemoteError: malformed, too many, invalid port."""
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
    """Decode a reply. An address with unprintable characters is replaced by an empty one.

    Raises:
        RemoteError: it does not parse, or names more ports than a request may.
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

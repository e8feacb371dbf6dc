"""Multiaddresses as shoal uses them: ``/ip4|ip6|dns…/…/tcp/…/p2p/ID``, as strings.

The packages above pass addresses as text. This module converts between text and the types of
py-multiaddr and libp2p, and turns a bad address into a one-line error.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import psutil
from libp2p.peer.id import ID
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_base.bounded import MANY
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.types import PeerId

_ANY = ("/ip4/0.0.0.0", "/ip6/::")

_HOST_PROTOCOLS = ("ip4", "ip6", "dns4", "dns6", "dns", "dnsaddr")
MAX_ADDRESS_CHARS = 512
"""Limit on the length of addresses and peer ids as text. Parsed ones are cached, since peer lists
repeat them."""
_SLOW_WEBSOCKET = "WebSocket is not supported: half as fast as TCP, and it cannot be aborted"
_SLOW_QUIC = "QUIC is not supported: py-libp2p reaches a thirtieth of TCP's speed with it"
_UNSUPPORTED = {
    "ws": _SLOW_WEBSOCKET,
    "wss": _SLOW_WEBSOCKET,
    "quic": _SLOW_QUIC,
    "quic-v1": _SLOW_QUIC,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAddress:
    """One address of one peer."""

    peer_id: PeerId
    transport: str
    """The address without the peer id, e.g. ``/ip4/127.0.0.1/tcp/4001``."""

    def __str__(self) -> str:
        return f"{self.transport}/p2p/{self.peer_id}"


def parse_peer_address(text: str) -> PeerAddress:
    """Parse a full multiaddress.

    Raises:
        ValueError: `text` is malformed, for example lacks ``/p2p/ID``. One line.
    """
    transport, separator, peer = text.rpartition("/p2p/")
    if not separator or not peer:
        raise ValueError(
            f"{text!r} does not name a peer: a full multiaddress ends in /p2p/PEER_ID, "
            "e.g. /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW…"
        )
    return PeerAddress(
        peer_id=parse_peer_id(peer.rstrip("/")), transport=parse_transport(transport)
    )


def parse_transport(text: str) -> str:
    """Return `text` in canonical form.

    Raises:
        ValueError: `text` is not a TCP address that shoal can listen on or dial.
    """
    if len(text) > MAX_ADDRESS_CHARS:
        raise ValueError("the multiaddress is too long")
    return _canonical(text)


def decode_addresses(addresses: Iterable[bytes]) -> Iterator[str]:
    """Yield the text of each valid binary multiaddress among the first few of an untrusted list."""
    for raw in islice(addresses, 4 * MAX_ADDRS_PER_PEER):
        try:
            text = str(Multiaddr(bytes(raw)))
        except Exception:  # noqa: BLE001 - py-multiaddr raises any type on hostile bytes
            continue
        yield text


def dialable(
    addresses: Iterable[str],
    is_allowed: Callable[[str], bool] = lambda _transport: True,
    *,
    most: int = MAX_ADDRS_PER_PEER,
) -> tuple[str, ...]:
    """Return at most `most` distinct transport addresses that name a host and that `is_allowed`
    accepts, in canonical form."""
    found: list[str] = []
    for text in islice(addresses, 4 * MAX_ADDRS_PER_PEER):
        try:
            address = parse_transport(text)
        except ValueError:
            continue
        if not is_unspecified(address) and address not in found and is_allowed(address):
            found.append(address)
    return tuple(found[:most])


_EXAMPLE = "/ip4/127.0.0.1/tcp/4001"


@lru_cache(maxsize=MANY)
def _canonical(text: str) -> str:
    try:
        address = Multiaddr(text)
        names = [protocol.name for protocol in address.protocols()]
    except Exception:  # noqa: BLE001 - py-multiaddr raises whatever its codecs raise
        raise ValueError(f"{text!r} is not a multiaddress like {_EXAMPLE}") from None
    if unsupported := _UNSUPPORTED.keys() & set(names):
        raise ValueError(f"{text!r}: {_UNSUPPORTED[min(unsupported)]} (docs/reach.md)")
    if names[2:] == ["p2p", "p2p-circuit"]:
        _check_relay(text, address)
        names = names[:2]
    if len(names) != 2 or names[0] not in _HOST_PROTOCOLS or names[1] != "tcp":
        raise ValueError(f"{text!r} is not of the form /ip4/ADDRESS/tcp/PORT (ip6, dns4, dns6)")
    return str(address)


def _check_relay(text: str, address: Multiaddr) -> None:
    relay = str(address).removesuffix("/p2p-circuit").rpartition("/p2p/")[2]
    try:
        parse_peer_id(relay)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


def is_circuit(address: str) -> bool:
    """Return whether an address leads through a relay, with or without a peer id at its end."""
    return "/p2p-circuit" in address


def parse_peer_id(text: str) -> PeerId:
    """Return `text` if it is a peer id in base58. Raises ValueError."""
    if len(text) > MAX_ADDRESS_CHARS:
        raise ValueError("the peer id is too long")
    return _peer_id(text)


@lru_cache(maxsize=MANY)
def _peer_id(text: str) -> PeerId:
    try:
        peer_id = ID.from_base58(text)
        raw = peer_id.to_bytes()
    except Exception as error:  # noqa: BLE001 - base58 raises several types, all meaning "no"
        raise ValueError(f"{text!r} is not a peer id{_why_not(text, error)}") from None
    if len(raw) < 34 or raw[0] not in (0x00, 0x12) or raw[1] != len(raw) - 2:
        raise ValueError(f"{text!r} is not a peer id")
    return PeerId(peer_id.to_base58())


def _why_not(text: str, error: Exception) -> str:
    """Return the known cause of an invalid peer id, or an empty text."""
    if "…" in text or "..." in text:
        return ": it is abbreviated; the peer prints its whole id when it starts"
    return f": {error}" if text.isascii() else ""


@lru_cache(maxsize=MANY)
def to_libp2p_id(peer_id: PeerId) -> ID:
    """Return libp2p's object for `peer_id`."""
    return ID.from_base58(peer_id)


def bytes_of_peer_id(peer_id: PeerId) -> bytes:
    """Return the binary form of `peer_id`."""
    return to_libp2p_id(peer_id).to_bytes()


def from_libp2p_id(peer_id: ID) -> PeerId:
    """Return the base58 text of libp2p's object."""
    raw = peer_id.to_bytes()
    return peer_id_of_bytes(raw) if len(raw) <= MAX_ADDRESS_CHARS else PeerId(peer_id.to_base58())


@lru_cache(maxsize=MANY)
def peer_id_of_bytes(raw: bytes) -> PeerId:
    """Return the base58 text of a binary peer id of at most a few hundred bytes. Cached."""
    return PeerId(ID(raw).to_base58())


def host_and_port(transport: str) -> tuple[str, int]:
    """Return host and port of a canonical transport address; for a circuit, those of the relay."""
    if is_circuit(transport):
        transport = transport.partition("/p2p/")[0]
    _, _, host, _, port = transport.split("/")
    return host, int(port)


def is_unspecified(transport: str) -> bool:
    """Return whether the host is 0.0.0.0 or ::, which can be listened on but not dialled."""
    host, _ = host_and_port(transport)
    return host in ("0.0.0.0", "::")


def has_non_loopback_address() -> bool:
    """Return whether this machine has an address other than loopback."""
    own = [a for any_host in _ANY for a in expand_unspecified(f"{any_host}/tcp/0")]
    return any(not ipaddress.ip_address(host_and_port(address)[0]).is_loopback for address in own)


def default_listen_addresses(listen: Sequence[str], default: str) -> tuple[str, ...]:
    """Return the addresses to listen on: IPv6 is added by default if this machine has no IPv4
    network.

    Otherwise a port of each family would be announced, and half of them dialled in vain.
    """
    if tuple(listen) != (default,):
        return tuple(listen)
    has_ip4, has_ip6 = (
        any(not ipaddress.ip_address(host_and_port(own)[0]).is_loopback for own in found)
        for found in (expand_unspecified(f"{any_host}/tcp/0") for any_host in _ANY)
    )
    only_ip6 = has_ip6 and not has_ip4
    return (default, f"{_ANY[1]}/tcp/0") if only_ip6 else (default,)


def expand_unspecified(transport: str) -> list[str]:
    """Replace 0.0.0.0 or :: with the machine's addresses of that family, loopback last."""
    if not is_unspecified(transport):
        return [transport]
    host, port = host_and_port(transport)
    family, name = (socket.AF_INET6, "ip6") if host == "::" else (socket.AF_INET, "ip4")
    found = {
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == family
    }
    usable = [ip for ip in found if not ipaddress.ip_address(ip).is_link_local]
    usable.sort(key=lambda ip: (ipaddress.ip_address(ip).is_loopback, ip))
    return [f"/{name}/{ip}/tcp/{port}" for ip in usable]

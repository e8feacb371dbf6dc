"""A router asked to forward a port, by NAT-PMP (RFC 6886). Blocks.

Two questions of some bytes to the gateway. What it says is believed as little as what UPnP says
(`peers.upnp`). The libraries for it build on one that nobody keeps, and that wants a compiler.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from shoal_p2p.peers.forwarded import Forwarded, RouterError

NAME: Final = "NAT-PMP"
_PORT = 5351
_ADDRESS, _MAP_TCP = 0, 2
_ANSWER = 128
"""Added to the question's number in its answer (section 3.1)."""
_WAITS_S = (0.25, 0.5, 1.0, 2.0)
"""Waits before a question is asked again, each twice the last (section 3.1). The RFC's five more
would take a minute."""
_MAX_ANSWER_BYTES = 1100  # section 3.5
_REFUSALS = {
    1: "it speaks another version",
    2: "it is not allowed there",
    3: "the router has no address outside itself",
    4: "the router has no port left",
    5: "the router does not know the question",
}
_ROUTES = Path("/proc/net/route")
_GATEWAY_FLAG = 0x2

Fits = Callable[[tuple[Any, ...]], bool]


def forward(port: int, outside: int, lease_s: float) -> Forwarded:
    """Forward the router's port `outside`, or another where that is taken, to `port` here.

    A port that leads to another machine is never taken: the router gives another. Raises
    RouterError.
    """
    with _gateway() as gateway:
        (packed,) = _ask(gateway, struct.pack("!BB", 0, _ADDRESS), "!4s")
        host = ipaddress.IPv4Address(packed)
        if host.is_unspecified:
            raise RouterError(_REFUSALS[3])
        given, lasts_s = _map_tcp(gateway, port, outside, int(lease_s))
    if not (given and lasts_s):
        raise RouterError("the router forwards nothing, and says that it does")
    return Forwarded(host=str(host), port=given, lease_s=float(lasts_s), way=NAME)


def forget(port: int, _outside: int) -> None:
    """Take back what was forwarded (section 3.4). Raises RouterError."""
    with _gateway() as gateway:
        _map_tcp(gateway, port, 0, 0)


def _gateway() -> socket.socket:
    """Return a socket that hears the gateway alone: the kernel drops what others send to it."""
    address = default_gateway()
    gateway = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        gateway.connect((address, _PORT))
    except OSError as error:
        gateway.close()
        raise RouterError(f"{address} cannot be asked: {error.strerror}") from None
    return gateway


def _map_tcp(gateway: socket.socket, inside: int, outside: int, lease_s: int) -> tuple[int, int]:
    """Return the router's port, and for how many seconds it leads here."""
    question = struct.pack("!BBHHHI", 0, _MAP_TCP, 0, inside, outside, lease_s)
    _, port, lasts_s = _ask(gateway, question, "!HHI", lambda rest: rest[0] == inside)
    return port, lasts_s


def _ask(
    gateway: socket.socket, question: bytes, form: str, fits: Fits = lambda _rest: True
) -> tuple[Any, ...]:
    """Return the answer's fields behind its head; raises RouterError."""
    for wait_s in _WAITS_S:
        try:
            gateway.send(question)
            fields = _answer(gateway, question[1], form, fits, time.monotonic() + wait_s)
        except OSError as error:  # a port that is shut says so
            raise RouterError(f"the gateway does not speak it: {error.strerror}") from None
        if fields is not None:
            return fields
    raise RouterError("no answer from the gateway")


def _answer(
    gateway: socket.socket, number: int, form: str, fits: Fits, until: float
) -> tuple[Any, ...] | None:
    while (left_s := until - time.monotonic()) > 0:
        gateway.settimeout(left_s)
        try:
            said = gateway.recv(_MAX_ANSWER_BYTES)
        except TimeoutError:
            return None
        if len(said) < 4 or said[0] != 0 or said[1] != number + _ANSWER:
            continue  # not to this question
        (result,) = struct.unpack_from("!H", said, 2)
        if result:
            raise RouterError(_REFUSALS.get(result, f"refused with the number {result}"))
        if len(said) >= 8 + struct.calcsize(form):
            fields = struct.unpack_from(form, said, 8)
            if fits(fields):
                return fields
    return None


def default_gateway() -> str:
    """Return the address of the router that leads out of here, as Linux knows it.

    Raises:
        RouterError: there is none, or this system does not say so.
    """
    try:
        lines = _ROUTES.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        raise RouterError("this system does not say what its gateway is") from None
    rows = [line.split() for line in lines]
    found = [
        (int(row[6]), socket.inet_ntoa(struct.pack("=I", int(row[2], 16))))
        for row in rows
        if len(row) > 7 and row[1] == row[7] == "00000000" and int(row[3], 16) & _GATEWAY_FLAG
    ]
    if not found:
        raise RouterError("this machine has no gateway")
    return min(found)[1]

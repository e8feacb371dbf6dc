"""A router asked to forward a port, by NAT-PMP (RFC 6886). Blocks; called in a thread.

Two questions of some bytes to the gateway. What it says is believed as little as what UPnP says
(`p2p.peers.upnp`). The libraries for it build on one that nobody keeps, and that wants a compiler.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from p2p.peers.router import Forwarded, RouterError

_PORT = 5351
_ADDRESS, _MAP_TCP = 0, 2
_ANSWER = 128
"""Added to the question's number in its answer (section 3.1)."""
_WAITS_S = (0.25, 0.5, 1.0, 2.0)
"""Before a question is asked again, each twice the last (section 3.1); the RFC's five more would
hold the thread for a minute."""
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


class NatPmpRouter:
    """The gateway of this machine."""

    def __init__(self, gateway: Callable[[], str] | None = None) -> None:
        self._gateway = gateway or default_gateway
        self._inside: int | None = None
        self._outside: int | None = None

    def forward(self, port: int, lease_s: float) -> Forwarded:
        """Forward a port, the same number if it is free there. Blocks. Raises RouterError.

        A port that leads to another machine is never taken: the router gives another.
        """
        with _Gateway(self._gateway()) as gateway:
            host = gateway.address_outside()
            wanted = port if self._inside != port or self._outside is None else self._outside
            outside, lasts_s = gateway.map_tcp(port, wanted, int(lease_s))
            self._inside, self._outside = port, outside
        return Forwarded(host=host, port=outside, lease_s=lasts_s)

    def forget(self) -> None:
        """Take back what was forwarded. Blocks. Raises RouterError."""
        inside, self._inside, self._outside = self._inside, None, None
        if inside is not None:
            with _Gateway(self._gateway()) as gateway:
                gateway.map_tcp(inside, 0, 0)  # section 3.4


class _Gateway:
    """Answers of one address alone: the kernel drops what others send to a connected socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.connect((address, _PORT))
        except OSError as error:
            self._socket.close()
            raise RouterError(f"{address} cannot be asked: {error.strerror}") from None

    def __enter__(self) -> _Gateway:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def address_outside(self) -> str:
        """Return the router's address outside, as it says."""
        (packed,) = self._ask(struct.pack("!BB", 0, _ADDRESS), "!4s", lambda _rest: True)
        address = ipaddress.IPv4Address(packed)
        if address.is_unspecified:
            raise RouterError(_REFUSALS[3])
        return str(address)

    def map_tcp(self, inside: int, outside: int, lease_s: int) -> tuple[int, float]:
        """Forward a port of the router, `outside` if it can, to `inside`; 0 seconds end it.

        Returns the router's port, and for how many seconds.
        """
        question = struct.pack("!BBHHHI", 0, _MAP_TCP, 0, inside, outside, lease_s)
        _, port, lasts_s = self._ask(question, "!HHI", lambda rest: rest[0] == inside)
        if lease_s and not (port and lasts_s):
            raise RouterError("the router forwards nothing, and says that it does")
        return int(port), float(lasts_s)

    def _ask(
        self, question: bytes, form: str, fits: Callable[[tuple[Any, ...]], bool]
    ) -> tuple[Any, ...]:
        """Return the answer's fields behind its head; raises RouterError."""
        for wait_s in _WAITS_S:
            try:
                self._socket.send(question)
                fields = self._answer(question[1], form, fits, time.monotonic() + wait_s)
            except OSError as error:  # a port that is shut says so
                raise RouterError(f"the gateway does not speak it: {error.strerror}") from None
            if fields is not None:
                return fields
        raise RouterError("no answer from the gateway")

    def _answer(
        self, number: int, form: str, fits: Callable[[tuple[Any, ...]], bool], until: float
    ) -> tuple[Any, ...] | None:
        while (left_s := until - time.monotonic()) > 0:
            self._socket.settimeout(left_s)
            try:
                said = self._socket.recv(_MAX_ANSWER_BYTES)
            except TimeoutError:
                return None
            if len(said) < 4 or said[0] != 0 or said[1] != number + _ANSWER:
                continue  # not to this question
            (result,) = struct.unpack_from("!H", said, 2)
            if result:
                raise RouterError(_REFUSALS.get(result, f"refused with the number {result}"))
            if len(said) < 8 + struct.calcsize(form):
                continue
            fields = struct.unpack_from(form, said, 8)
            if fits(fields):
                return fields
        return None


def default_gateway(routes: Path = _ROUTES) -> str:
    """Return the address of the router that leads out of here, as Linux knows it.

    Raises:
        RouterError: there is none, or this system does not say so.
    """
    try:
        lines = routes.read_text(encoding="ascii").splitlines()[1:]
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

"""The router of this network, asked to forward a port, by a process of its own for each question.

    node ── port, seconds, its port now ──▶ child ◀──▶ whoever answers as a router
         ◀── host, port, seconds, or why not ──

Any machine on the local network may answer as a router. miniupnpc keeps whatever it is sent
(measured: a stranger who sends without end had all of the memory), waits for each part of an answer
but never for the whole, and writes to the terminal. So the child has little memory, some seconds,
and no terminal (`shoal_p2p.peers.upnp`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final

import trio

from shoal_base.children import environment, python
from shoal_base.waits import AT_ONCE_S
from shoal_p2p.peers.upnp import Forwarded, RouterError

MAX_ANSWER_BYTES: Final = 1 << 12
"""The child's one line has some hundred bytes."""


def can_ask() -> bool:
    """Return whether the extra `reach` is installed."""
    return find_spec("miniupnpc") is not None


class UpnpClient:
    """Asks one question at a time. Whoever is cancelled takes the child along."""

    def __init__(self, command: Sequence[str] | None = None) -> None:
        """`command` stands in for the child; the question is its last argument."""
        self._command = list(command or python("-m", "shoal_p2p.peers.upnp"))
        self._mapping: tuple[int, int] | None = None
        """The port here, and the router's that leads to it."""

    async def forward(self, port: int, lease_s: float) -> Forwarded:
        """Have a port of the router lead to this machine's `port`: the one held, else the same
        number if that is free, else another.

        Raises:
            RouterError: there is no router, or it does not forward.
        """
        held = self._mapping
        outside = held[1] if held is not None and held[0] == port else port
        reply = await self._ask(port, lease_s, outside)
        try:
            found = Forwarded(
                host=str(reply["host"]),
                port=int(reply["port"]),
                lease_s=float(reply["lease_s"]),
            )
        except (LookupError, ValueError, TypeError, ArithmeticError):
            raise RouterError(_NO_ANSWER) from None
        self._mapping = (port, found.port)
        return found

    async def forget(self) -> None:
        """Take back what was forwarded, if anything was. Raises RouterError."""
        held, self._mapping = self._mapping, None
        if held is not None:
            await self._ask(held[0], 0.0, held[1])

    async def _ask(self, port: int, lease_s: float, outside: int) -> dict[str, Any]:
        question = {"port": port, "lease_s": lease_s, "outside": outside}
        try:
            line = await self._line(json.dumps(question))
        except OSError as error:
            raise RouterError(f"nothing can ask it: {error.strerror or error}") from None
        if not line:
            raise RouterError("no answer in time, or one too large to hold")
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            raise RouterError(_NO_ANSWER)
        if "error" in reply:
            raise RouterError(str(reply["error"]))
        return reply

    async def _line(self, question: str) -> bytes:
        child = await trio.lowlevel.open_process(
            [*self._command, question],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            # Ctrl-C in the terminal is the node's, which then has the router forget the port.
            start_new_session=True,
        )
        assert child.stdout is not None
        reply = b""
        try:
            while b"\n" not in reply and len(reply) < MAX_ANSWER_BYTES:
                piece = await child.stdout.receive_some(MAX_ANSWER_BYTES)
                if not piece:
                    break
                reply += piece
        finally:
            with suppress(ProcessLookupError):
                child.kill()
            with trio.move_on_after(AT_ONCE_S) as scope:
                scope.shield = True
                await child.wait()
                await child.stdout.aclose()
        return reply


_NO_ANSWER: Final = "what asks it says nothing that is an answer"

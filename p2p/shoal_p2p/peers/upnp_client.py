"""Asks the network's router to forward a port, with a child process for each request.

    node ── port, seconds, its port now ──▶ child ◀──▶ any machine that answers as a router
         ◀── host, port, seconds, or the error ──

Any machine on the local network may answer as a router. miniupnpc stores everything that it
receives (measured: a peer that sends without end uses up all memory), has a deadline for each part
of a reply but not for the whole, and writes to the terminal. So the child has little memory, a few
seconds, and no terminal (`shoal_p2p.peers.upnp`).
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
"""The child's reply, one line, has about a hundred bytes."""


def can_ask() -> bool:
    """Return whether the extra `reach` is installed."""
    return find_spec("miniupnpc") is not None


class UpnpClient:
    """Makes one request at a time. A cancelled call kills its child process."""

    def __init__(self, command: Sequence[str] | None = None) -> None:
        """`command` replaces the child's command line; the request is its last argument."""
        self._command = list(command or python("-m", "shoal_p2p.peers.upnp"))
        self._mapping: tuple[int, int] | None = None
        """The local port, and the router's port that leads to it."""

    async def forward(self, port: int, lease_s: float) -> Forwarded:
        """Forward a port of the router to this machine's `port`.

        That is the port forwarded before, otherwise the same number if it is free, or another.

        Raises:
            RouterError: there is no router, or it does not forward.
        """
        mapping = self._mapping
        outside = mapping[1] if mapping is not None and mapping[0] == port else port
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
        """Remove the mapping, if there is one. Raises RouterError."""
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            await self._ask(mapping[0], 0.0, mapping[1])

    async def _ask(self, port: int, lease_s: float, outside: int) -> dict[str, Any]:
        question = {"port": port, "lease_s": lease_s, "outside": outside}
        try:
            line = await self._line(json.dumps(question))
        except OSError as error:
            raise RouterError(
                f"its child process cannot start: {error.strerror or error}"
            ) from None
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
            # Ctrl-C is for the node, which then removes the mapping.
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


_NO_ANSWER: Final = "the child process sent no valid reply"

"""A router asked by UPnP, in a process of its own that may fall ill in the node's place.

    node ──port, seconds──▶ child: miniupnpc ◀──▶ whoever calls itself a router on the local network
         ◀──host, port, seconds, or why not──

miniupnpc keeps whatever it is sent for as long as it comes: measured, a stranger in the same café
who sends without end had all of the memory. It waits for each part of an answer, and never for
the whole; and it writes to the terminal. So it has little memory and some seconds here, and no
terminal. The child is there while a router forwards, to be asked again, and ends with the node.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from p2p.peers.router import Forwarded, RouterError
from p2p.peers.upnp import UpnpRouter
from shoal_base.children import environment, python
from shoal_base.lines import say_json

MEMORY_BYTES: Final = 128 << 20
"""Of addresses; 18 MiB are in use before anybody is asked."""
ANSWER_S: Final = 19
"""For all that one question needs, discovery included."""
_LINE_BYTES: Final = 1 << 12
_END_S: Final = 1.0
_PIPE: Final = subprocess.PIPE


class UpnpProcess:
    """`UpnpRouter` in a child. One caller at a time."""

    def __init__(self, command: Sequence[str] | None = None) -> None:
        """`command` stands in for the child that this module is."""
        self._command = list(command or python("-m", "p2p.peers.upnp_process"))
        self._child: subprocess.Popen[bytes] | None = None

    def forward(self, port: int, lease_s: float) -> Forwarded:
        """See `p2p.peers.router.Router`."""
        try:
            with _answers_alone():
                said = self._ask({"port": port, "lease_s": lease_s})
                return Forwarded(
                    host=str(said["host"]), port=int(said["port"]), lease_s=float(said["lease_s"])
                )
        except BaseException:
            self._end()
            raise

    def forget(self) -> None:
        """See `p2p.peers.router.Router`."""
        if self._child is None:
            return
        try:
            with _answers_alone():
                self._ask({})
        finally:
            self._end()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the child's answer. Raises RouterError, and anything for what is none."""
        try:
            child = self._child = self._child or self._started()
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(json.dumps(question).encode() + b"\n")
            child.stdin.flush()
            line = child.stdout.readline(_LINE_BYTES)
        except OSError as error:
            raise RouterError(f"nothing can ask it: {error.strerror or error}") from None
        if not line:
            raise RouterError(f"no answer in {ANSWER_S} s, or one too large to hold")
        said = json.loads(line)
        if "error" in said:
            raise RouterError(str(said["error"]))
        return dict(said)

    def _started(self) -> subprocess.Popen[bytes]:
        # Of a group of its own: Ctrl-C in the terminal is the node's, which has it forget the port.
        return subprocess.Popen(
            self._command,
            stdin=_PIPE,
            stdout=_PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
        )

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a kernel that is busy with it
            child.wait(_END_S)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def _answers_alone() -> Iterator[None]:
    """Let what is read of the child be an answer or a RouterError."""
    try:
        yield
    except (LookupError, ValueError, TypeError, ArithmeticError, RecursionError):
        raise RouterError("what asks it says nothing that is an answer") from None


def main() -> int:
    """Answer questions, a line each, until there are no more."""
    with contextlib.suppress(ValueError):  # a system that bounds no addresses says so (macOS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the end of the questions is its end
    router = UpnpRouter()
    for line in sys.stdin:
        # In C, where it waits, no other way leads out. Its default is the end of the process.
        signal.alarm(ANSWER_S)
        question = json.loads(line)
        try:
            answer = asdict(router.forward(**question)) if question else _forgotten(router)
        except RouterError as error:
            answer = {"error": str(error)}
        signal.alarm(0)
        say_json(answer)
    return 0


def _forgotten(router: UpnpRouter) -> dict[str, Any]:
    router.forget()
    return {}


if __name__ == "__main__":
    sys.exit(main())

"""Separate hosts on this machine: network namespaces joined by a bridge, with links to cut.

Needs root and iproute2, which `available()` checks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


def available() -> bool:
    """Return whether namespaces can be created here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"shoal{os.getpid()}p"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return False
    run("ip", "netns", "del", name)
    return True


class Namespaces:
    """Network namespaces of one test."""

    def __init__(self, tag: str) -> None:
        self._tag = f"{tag}{os.getpid() % 100000:x}"
        self._made: list[str] = []
        self._count = 0

    def close(self) -> None:
        """Remove everything; the links go with their namespaces."""
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def _namespace(self, name: str) -> None:
        run("ip", "netns", "add", name)
        self._made.append(name)
        run("ip", "-n", name, "link", "set", "lo", "up")


def join_namespaces(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Link two namespaces; each end is a device and its namespace."""
    run("ip", "link", "add", one[0], "netns", one[1], "type", "veth", "peer", "name", other[0],
        "netns", other[1])  # fmt: skip


def run(*command: str, text: str | None = None) -> str:
    """Run a command with this input; return its output. Raises OSError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, input=text)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Lan(Namespaces):
    """Two bridges, A and B, in separate namespaces, joined by one link, each with hosts.

    Every host is 10.77.0.x in one network: cutting the link separates A's hosts from B's.
    """

    def __init__(self) -> None:
        super().__init__("sh")

    def open(self) -> None:
        """Create both sides and the link between them."""
        for side in "ab":
            self._namespace(f"{self._tag}{side}")
            self._in(side, "link", "add", "name", "hub", "type", "bridge")
            self._in(side, "link", "set", "hub", "up")
        join_namespaces(("join", f"{self._tag}a"), ("join", f"{self._tag}b"))
        for side in "ab":
            self._in(side, "link", "set", "join", "master", "hub")
        self.heal()

    def host(self, side: str) -> tuple[str, tuple[str, ...]]:
        """Add a host to side ``a`` or ``b``; return its address and its command prefix."""
        self._count += 1
        name, address = f"{self._tag}h{self._count}", f"10.77.0.{self._count}"
        port = f"p{self._count}"
        self._namespace(name)
        join_namespaces((port, f"{self._tag}{side}"), ("eth0", name))
        self._in(side, "link", "set", port, "master", "hub")
        self._in(side, "link", "set", port, "up")
        run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        return address, ("ip", "netns", "exec", name)

    def cut(self) -> None:
        """Cut the link between A and B; no connection is closed."""
        self._in("a", "link", "set", "join", "down")

    def heal(self) -> None:
        """Join A and B again."""
        for side in "ab":
            self._in(side, "link", "set", "join", "up")

    def _in(self, side: str, *command: str) -> None:
        run("ip", "-n", f"{self._tag}{side}", *command)


@contextmanager
def open_lan() -> Iterator[Lan]:
    """A network that is removed in any case."""
    lan = Lan()
    try:
        lan.open()
        yield lan
    finally:
        lan.close()

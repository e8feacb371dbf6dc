"""Hosts of their own on this machine: network namespaces joined by a bridge, links that can be cut.

Needs root and iproute2; `available()` says whether a test can have them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


def available() -> bool:
    """Whether namespaces can be made here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"shoal{os.getpid()}p"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return False
    _ip("netns", "del", name)
    return True


class Lan:
    """Two bridges, A and B, in namespaces of their own, joined by one link; hosts hang off either.

    Every host is 10.77.0.x in one network: whoever cuts the link parts A's hosts from B's.
    """

    def __init__(self) -> None:
        self._tag = f"sh{os.getpid() % 100000:x}"
        self._made: list[str] = []
        self._count = 0

    def open(self) -> None:
        """Make both sides and the link between them."""
        for side in "ab":
            self._namespace(f"{self._tag}{side}")
            self._in(side, "link", "add", "name", "hub", "type", "bridge")
            self._in(side, "link", "set", "hub", "up")
        _ip("link", "add", "join", "netns", f"{self._tag}a", "type", "veth", "peer", "name",
            "join", "netns", f"{self._tag}b")  # fmt: skip
        for side in "ab":
            self._in(side, "link", "set", "join", "master", "hub")
        self.heal()

    def host(self, side: str) -> tuple[str, tuple[str, ...]]:
        """Add a host to side ``a`` or ``b``; return its address and the prefix of its commands."""
        self._count += 1
        name, address = f"{self._tag}h{self._count}", f"10.77.0.{self._count}"
        port = f"p{self._count}"
        self._namespace(name)
        _ip("link", "add", port, "netns", f"{self._tag}{side}", "type", "veth", "peer", "name",
            "eth0", "netns", name)  # fmt: skip
        self._in(side, "link", "set", port, "master", "hub")
        self._in(side, "link", "set", port, "up")
        for command in (
            ("addr", "add", f"{address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", name, *command)
        return address, ("ip", "netns", "exec", name)

    def cut(self) -> None:
        """From now on nothing passes between A and B; no connection is closed."""
        self._in("a", "link", "set", "join", "down")

    def heal(self) -> None:
        """Join A and B again."""
        for side in "ab":
            self._in(side, "link", "set", "join", "up")

    def close(self) -> None:
        """Remove everything; the links go with their namespaces."""
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def _namespace(self, name: str) -> None:
        _ip("netns", "add", name)
        self._made.append(name)

    def _in(self, side: str, *command: str) -> None:
        _ip("-n", f"{self._tag}{side}", *command)


@contextmanager
def open_lan() -> Iterator[Lan]:
    """A network that is taken down whatever happens on it."""
    lan = Lan()
    try:
        lan.open()
        yield lan
    finally:
        lan.close()


def _ip(*command: str) -> None:
    done = subprocess.run(["ip", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(command)}: {done.stderr.strip()}")

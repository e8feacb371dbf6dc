"""Hosts behind address translation on this machine: namespaces, routers that masquerade.

    host 192.168.i.2 ── router 192.168.i.1 | 10.88.0.1i ── public network (bridge, 10.88.0.1)

Nothing outside a router can open a connection to what is behind it.  Needs root, iproute2 and
nftables; `available()` says whether a test can have them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

PUBLIC = "10.88.0.1"
Prefix = tuple[str, ...]

_MASQUERADE = """\
table ip nat {
    chain post { type nat hook postrouting priority srcnat; oifname "wan" masquerade; }
}
table ip filter {
    chain in {
        type filter hook forward priority filter; policy drop;
        iifname "lan" accept
        ct state established,related accept
    }
}
"""


def available() -> bool:
    """Whether such a network can be made here."""
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("nft")):
        return False
    try:
        with open_internet() as net:
            net.behind_nat()
    except OSError:
        return False
    return True


class Internet:
    """A public network with one public host, and as many hosts behind routers as wanted."""

    def __init__(self) -> None:
        self._tag = f"nat{os.getpid() % 100000:x}"
        self._made: list[str] = []
        self._count = 0

    @property
    def public(self) -> Prefix:
        """The prefix of commands on the public host, whose address is `PUBLIC`."""
        return ("ip", "netns", "exec", self._tag)

    def open(self) -> None:
        """Make the public network."""
        self._namespace(self._tag)
        _run("ip", "-n", self._tag, "link", "add", "name", "hub", "type", "bridge")
        _run("ip", "-n", self._tag, "addr", "add", f"{PUBLIC}/24", "dev", "hub")
        _run("ip", "-n", self._tag, "link", "set", "hub", "up")

    def behind_nat(self) -> Prefix:
        """Add a host behind a router of its own; return the prefix of commands on it."""
        self._count += 1
        router, host = f"{self._tag}r{self._count}", f"{self._tag}h{self._count}"
        self._namespace(router)
        self._namespace(host)
        port, lan = f"p{self._count}", f"192.168.{self._count}"
        _veth((port, self._tag), ("wan", router))
        _veth(("lan", router), ("eth0", host))
        _run("ip", "-n", self._tag, "link", "set", port, "master", "hub")
        _run("ip", "-n", router, "addr", "add", f"10.88.0.{10 + self._count}/24", "dev", "wan")
        _run("ip", "-n", router, "addr", "add", f"{lan}.1/24", "dev", "lan")
        _run("ip", "-n", host, "addr", "add", f"{lan}.2/24", "dev", "eth0")
        for namespace, device in (
            (self._tag, port),
            (router, "wan"),
            (router, "lan"),
            (host, "eth0"),
        ):
            _run("ip", "-n", namespace, "link", "set", device, "up")
        _run("ip", "-n", host, "route", "add", "default", "via", f"{lan}.1")
        _run("ip", "netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        _run("ip", "netns", "exec", router, "nft", "-f", "-", text=_MASQUERADE)
        return ("ip", "netns", "exec", host)

    def close(self) -> None:
        """Remove everything; the links go with their namespaces."""
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def _namespace(self, name: str) -> None:
        _run("ip", "netns", "add", name)
        self._made.append(name)
        _run("ip", "-n", name, "link", "set", "lo", "up")


@contextmanager
def open_internet() -> Iterator[Internet]:
    """A network that is taken down whatever happens on it."""
    net = Internet()
    try:
        net.open()
        yield net
    finally:
        net.close()


def _veth(one: tuple[str, str], other: tuple[str, str]) -> None:
    _run("ip", "link", "add", one[0], "netns", one[1], "type", "veth", "peer", "name", other[0],
         "netns", other[1])  # fmt: skip


def _run(*command: str, text: str | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, input=text)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")

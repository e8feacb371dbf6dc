"""Hosts behind address translation on this machine, by network namespaces and masquerading routers.

    host 192.168.i.2 ── router 192.168.i.1 | 11.88.0.1i ── public network (bridge, 11.88.0.1)

No connection can be opened from outside a router to a host behind it. A router keeps a port's
number (cone NAT), or maps it to another for each destination (symmetric NAT). Unrequested packets
are dropped or rejected. Needs root, iproute2 and nftables, which `available()` checks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from tests.support import slow_link
from tests.support.netns import Namespaces, join_namespaces, run

_PATIENCE_S = 20.0
PUBLIC = "11.88.0.1"
"""Unused in practice; miniupnpd forwards nothing for the addresses reserved for documentation."""
Prefix = tuple[str, ...]

_RULES = """\
table inet filter {
    chain own {
        type filter hook input priority filter;
        iifname "wan" ct state new %s
    }
    chain forward {
        type filter hook forward priority filter; policy drop;
        iifname "lan" accept
        ct state established,related accept
        jump miniupnpd
    }
    chain pre { type nat hook prerouting priority dstnat; jump prerouting_miniupnpd; }
    chain post {
        type nat hook postrouting priority srcnat;
        jump postrouting_miniupnpd
        meta nfproto ipv4 oifname "wan" %s
    }
    chain miniupnpd {}
    chain prerouting_miniupnpd {}
    chain postrouting_miniupnpd {}
}
"""
_FORWARDING = """\
ext_ifname=wan
listening_ip=lan
ipv6_disable=yes
enable_upnp=yes
enable_natpmp=no
uuid=00000000-0000-0000-0000-000000000001
allow 1024-65535 192.168.0.0/16 1024-65535
"""


class Router(StrEnum):
    """A router's kind of translation."""

    CONE = "masquerade"
    SYMMETRIC = "masquerade random,fully-random"


def available() -> bool:
    """Return whether such a network can be created here."""
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("nft")):
        return False
    try:
        with open_internet() as net:
            net.behind_nat()
    except OSError:
        return False
    return True


class Internet(Namespaces):
    """A public network with one public host, and any number of hosts behind routers."""

    def __init__(self) -> None:
        super().__init__("nat")
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._folders: list[tempfile.TemporaryDirectory[str]] = []

    @property
    def public(self) -> Prefix:
        """The command prefix for the public host, whose address is `PUBLIC`."""
        return ("ip", "netns", "exec", self._tag)

    def open(self) -> None:
        """Create the public network."""
        self._namespace(self._tag)
        run("ip", "-n", self._tag, "link", "add", "name", "hub", "type", "bridge")
        run("ip", "-n", self._tag, "addr", "add", f"{PUBLIC}/24", "dev", "hub")
        run("ip", "-n", self._tag, "link", "set", "hub", "up")

    def behind_nat(
        self, kind: Router = Router.CONE, *, refuses: bool = False, delay_s: float = 0.0
    ) -> Prefix:
        """Add a host behind its own router; return the command prefix for it.

        A router that `refuses` answers unrequested packets with a reset; otherwise it drops them.
        With a delay, its packets take this long in both directions; within a test, all hosts must
        have one.
        """
        self._count += 1
        router, host = f"{self._tag}r{self._count}", f"{self._tag}h{self._count}"
        self._namespace(router)
        self._namespace(host)
        port, lan = f"p{self._count}", f"192.168.{self._count}"
        if delay_s:
            self._slow_link((port, self._tag), ("wan", router), delay_s)
        else:
            join_namespaces((port, self._tag), ("wan", router))
            run("ip", "-n", self._tag, "link", "set", port, "master", "hub")
        join_namespaces(("lan", router), ("eth0", host))
        outside = f"11.88.0.{10 + self._count}"
        run("ip", "-n", router, "addr", "add", f"{outside}/{32 if delay_s else 24}", "dev", "wan")
        run("ip", "-n", router, "addr", "add", f"{lan}.1/24", "dev", "lan")
        run("ip", "-n", host, "addr", "add", f"{lan}.2/24", "dev", "eth0")
        for namespace, device in (
            (self._tag, port),
            (router, "wan"),
            (router, "lan"),
            (host, "eth0"),
        ):
            run("ip", "-n", namespace, "link", "set", device, "up")
        run("ip", "-n", host, "route", "add", "default", "via", f"{lan}.1")
        if delay_s:
            run("ip", "-n", self._tag, "route", "add", outside, "dev", port)
            run("ip", "-n", router, "route", "add", "default", "dev", "wan")
            run("ip", "netns", "exec", self._tag, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        run("ip", "netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        run("ip", "netns", "exec", router, "nft", "-f", "-",
             text=_RULES % ("reject with tcp reset" if refuses else "drop", kind))  # fmt: skip
        return ("ip", "netns", "exec", host)

    def _slow_link(self, one: tuple[str, str], other: tuple[str, str], delay_s: float) -> None:
        folder = tempfile.TemporaryDirectory()
        self._folders.append(folder)
        sockets = [f"{folder.name}/{number}" for number in range(2)]
        for (device, namespace), (own, far) in zip(
            (one, other), (sockets, sockets[::-1]), strict=True
        ):
            inside = ("ip", "netns", "exec", namespace)
            command = (sys.executable, slow_link.__file__, device, own, far, str(delay_s / 2))
            self._daemons.append(subprocess.Popen([*inside, *command]))
            until = time.monotonic() + _PATIENCE_S
            while f" {device}:" not in run("ip", "-n", namespace, "link"):
                if time.monotonic() > until:
                    raise OSError(f"no device {device}")
                time.sleep(0.05)

    def behind_forwarding(self) -> tuple[Prefix, str]:
        """Add a host whose router forwards ports when asked by UPnP.

        Also returns the router's address.
        """
        host = self.behind_nat()
        router = f"{self._tag}r{self._count}"
        folder = tempfile.TemporaryDirectory()
        self._folders.append(folder)
        config = Path(folder.name) / "miniupnpd.conf"
        config.write_text(_FORWARDING)
        command = ("ip", "netns", "exec", router, "miniupnpd", "-d", "-f", str(config))
        with (Path(folder.name) / "log").open("wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    [*command, "-P", f"{folder.name}/pid"], stdout=log, stderr=subprocess.STDOUT
                )
            )
        return host, f"11.88.0.{10 + self._count}"

    def forwards(self) -> str:
        """Return the latest router's forwarded ports, in nftables' notation."""
        router = f"{self._tag}r{self._count}"
        rules = ("list", "chain", "inet", "filter", "prerouting_miniupnpd")
        return run("ip", "netns", "exec", router, "nft", *rules)

    def close(self) -> None:
        """Remove everything; the links go with their namespaces."""
        for daemon in self._daemons:
            daemon.terminate()
            daemon.wait()
        for folder in self._folders:
            folder.cleanup()
        super().close()


@contextmanager
def open_internet() -> Iterator[Internet]:
    """A network that is removed in any case."""
    net = Internet()
    try:
        net.open()
        yield net
    finally:
        net.close()

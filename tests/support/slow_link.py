"""One end of a delayed link between two network namespaces: one process in each of them.

    python tests/support/slow_link.py DEVICE OWN_SOCKET OTHER_SOCKET SECONDS

A device for IP packets here, and another at the other end; packets arrive after SECONDS.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections import deque

_SET_DEVICE = 0x400454CA
_IP_PACKETS_ONLY = 0x0001 | 0x1000
_MAX_PACKET_BYTES = 1 << 16


def main(device: str, own: str, other: str, seconds: str) -> None:
    """Carry packets until killed."""
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, _SET_DEVICE, struct.pack("16sH22x", device.encode(), _IP_PACKETS_ONLY))
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    link.bind(own)
    waiting: deque[tuple[float, bytes]] = deque()
    while True:
        wait_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([tun, link], [], [], wait_s)  # type: ignore[type-var]
        if tun in readable:
            packet = os.read(tun, _MAX_PACKET_BYTES)
            waiting.append((time.monotonic() + float(seconds), packet))
        if link in readable:
            with contextlib.suppress(OSError):  # the device is not up yet
                os.write(tun, link.recv(_MAX_PACKET_BYTES))
        while waiting and waiting[0][0] <= time.monotonic():
            with contextlib.suppress(OSError):  # the other end does not exist yet
                link.sendto(waiting.popleft()[1], other)


if __name__ == "__main__":
    main(*sys.argv[1:])

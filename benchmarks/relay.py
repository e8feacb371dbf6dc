"""A TCP relay on loopback that counts the bytes on the wire."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self

_READ_BYTES = 1 << 16
_QUIET_SECONDS = 1.5
"""Longer than gossip's heartbeat, which advertises recent messages again."""
_MAX_WAIT_SECONDS = 20.0


class CountingRelay:
    """Accepts on a free port, forwards to `target_port`, counts bytes of both directions.

    TCP's and IP's own headers are not seen and not counted.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._sent = 0
        self._returned = 0
        self._last_at = time.monotonic()
        self._sockets: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def passed(self) -> tuple[int, int]:
        """Return the bytes that have gone from the dialer to the target, and back."""
        with self._lock:
            return self._sent, self._returned

    def quiet(self) -> None:
        """Wait until nothing passes any more (at most some seconds)."""
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while time.monotonic() < min(self._last_at + _QUIET_SECONDS, deadline):
            time.sleep(0.05)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:  # closed, or the target is gone: the dialer sees a closed connection
                return
            self._sockets += [near, far]
            for args in ((near, far, True), (far, near, False)):
                args[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=args, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, outward: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_READ_BYTES):
                with self._lock:
                    self._sent += len(data) * outward
                    self._returned += len(data) * (not outward)
                    self._last_at = time.monotonic()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

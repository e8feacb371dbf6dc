"""Test servers in threads: HTTP, and raw bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from socketserver import TCPServer


@contextmanager
def open_server(server: TCPServer) -> Iterator[str]:
    """Serve until the block ends; yield the server's URL."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def open_listener(
    listener: socket.socket, serve: Callable[[socket.socket], None]
) -> Iterator[None]:
    """Pass each connection to `serve` in its own thread; all are closed at the end."""
    connections: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

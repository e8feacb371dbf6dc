"""A node's socket that gives recorded answers: for tests of what `shoal debug` makes of them."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME
from shoal_ipc.codec import decode_ipc, encode_ipc
from shoal_ipc.framing import FrameDecoder, encode_frame
from shoal_wire.types import PeerId

_PEER = PeerId("12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV")


@contextlib.contextmanager
def replay_node(data_dir: Path, answers: Mapping[str, Any]) -> Iterator[None]:
    """Serve `answers`, by the name of the view, in `data_dir`; every order is said to be done."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(data_dir / SOCKET_NAME))
        listener.listen()
        thread = threading.Thread(target=_serve, args=(listener, answers), daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            (data_dir / SOCKET_NAME).unlink()


def _serve(listener: socket.socket, answers: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the listener's end
        while True:
            connection, _ = listener.accept()
            with connection:
                _answer_all(connection, answers)


def _answer_all(connection: socket.socket, answers: Mapping[str, Any]) -> None:
    decoder = FrameDecoder()
    while data := connection.recv(1 << 16):
        for raw in decoder.feed(data):
            asked = decode_ipc(raw)
            reply = m.IpcFrame(request_id=asked.request_id, body=_reply(asked.body, answers))
            connection.sendall(encode_frame(encode_ipc(reply)))


def _reply(body: m.Body, answers: Mapping[str, Any]) -> m.Body:
    if isinstance(body, m.Hello):
        return m.HelloReply(ipc_version=body.ipc_version, peer_id=_PEER, manifest=b"")
    if isinstance(body, m.Inspect):
        return m.InspectReply(json=json.dumps(answers[body.view]))
    return m.Done(count=1)

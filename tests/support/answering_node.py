"""A node's socket that answers views from a dictionary, and can be stopped and restarted."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME
from shoal_ipc.codec import decode_ipc, encode_ipc
from shoal_wire.framing import FrameDecoder, encode_frame
from shoal_wire.types import PeerId
from tests.support.servers import open_listener


@contextlib.contextmanager
def answering_node(data_dir: Path, answers: Mapping[str, Any]) -> Iterator[None]:
    """Serve any number of connections, which are closed at the end; `answers` may change."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(data_dir / SOCKET_NAME))
    listener.listen()
    with open_listener(listener, partial(_answer_all, answers)):
        yield
    (data_dir / SOCKET_NAME).unlink()


def _answer_all(answers: Mapping[str, Any], connection: socket.socket) -> None:
    decoder = FrameDecoder()
    with connection, contextlib.suppress(OSError):
        while data := connection.recv(1 << 16):
            for raw in decoder.feed(data):
                request = decode_ipc(raw)
                body = _reply(request.body, answers)
                frame = encode_ipc(m.IpcFrame(request_id=request.request_id, body=body))
                connection.sendall(encode_frame(frame))


def _reply(body: m.Body, answers: Mapping[str, Any]) -> m.Body:
    if isinstance(body, m.Hello):
        return m.HelloReply(ipc_version=body.ipc_version, peer_id=PeerId("unknown"), manifest=b"")
    if not isinstance(body, m.Inspect) or body.view not in answers:
        return m.Failure(reason="no such view here")
    return m.InspectReply(json=json.dumps(answers[body.view]))

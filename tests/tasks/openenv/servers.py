"""A small server of OpenEnv's protocol for tests: real sockets, games in this process.

    with served(Guess()) as address: ...

Tests can change `Wire`: the replies to `/metadata`, `/schema` and each message.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import h11
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Message, Ping, Request, TextMessage

from tests.support.servers import open_listener

TEXT_SCHEMA = {
    "action": {
        "properties": {"message": {"type": "string"}, "metadata": {"type": "object"}},
        "required": ["message"],
    },
    "observation": {
        "properties": {
            "text": {"type": "string"},
            "done": {"type": "boolean"},
            "reward": {"type": "number"},
            "metadata": {"type": "object"},
        },
        "required": ["text"],
    },
}


class Guess:
    """Guess a number from 1 to 6, in at most six guesses."""

    def __init__(self) -> None:
        self.secret, self.left = 0, 0

    def reset(self, seed: int) -> dict[str, Any]:
        self.secret, self.left = random.Random(seed).randint(1, 6), 6
        return seen("Guess a number from 1 to 6.")

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        text = action["message"].strip()
        self.left -= 1
        if text == str(self.secret):
            return seen("Right!", 1.0, True)
        return seen("Wrong.", 0.1, self.left == 0)


def seen(text: str, reward: float | None = None, done: bool = False) -> dict[str, Any]:
    """An observation as OpenEnv serialises it."""
    observation = {"text": text, "metadata": {}}
    return {
        "type": "observation",
        "data": {"observation": observation, "reward": reward, "done": done},
    }


def error(code: str, message: str = "no") -> dict[str, Any]:
    """An error as OpenEnv serialises it."""
    return {"type": "error", "data": {"message": message, "code": code}}


@dataclass(kw_only=True)
class Wire:
    """The replies of one server."""

    game: Callable[[], Any] = Guess
    metadata: dict[str, Any] = field(
        default_factory=lambda: {"name": "Guess", "version": "1.0.0", "description": "A game"}
    )
    schema: dict[str, Any] = field(default_factory=lambda: TEXT_SCHEMA)
    max_sessions: int = 4
    bend: Callable[[dict[str, Any], str], Any] = lambda _request, answer: answer
    """Given a message and its honest reply: a text is sent, bytes or an iterator of bytes are sent
    raw, and None is no reply."""
    num_sessions: int = 0
    """Number of open sessions."""
    num_opened: int = 0
    """Number of sessions ever opened."""


def answer_of(game: Any, requested: dict[str, Any]) -> Any:
    """Return an honest server's reply to a message."""
    data = requested["data"]
    if requested["type"] == "reset":
        return game.reset(data["seed"])
    if set(data) != {"message"} or not isinstance(data["message"], str):
        return error("VALIDATION_ERROR")
    try:
        return game.step(data)
    except ValueError as failed:
        return error("EXECUTION_ERROR", str(failed))


@contextlib.contextmanager
def served(wire: Wire, port: int = 0) -> Iterator[str]:
    """Serve until the block ends; yield the address."""
    listener = socket.create_server(("127.0.0.1", port))
    with open_listener(listener, partial(_serve, wire)):
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}"


def _serve(wire: Wire, one: socket.socket) -> None:
    with contextlib.suppress(OSError), one:
        data = one.recv(65_536)
        if data.startswith(b"GET /ws"):
            _talk(one, wire, data)
        else:
            _get(one, wire, data)


def _get(one: socket.socket, wire: Wire, data: bytes) -> None:
    talk = h11.Connection(our_role=h11.SERVER)
    talk.receive_data(data)
    request = talk.next_event()
    if not isinstance(request, h11.Request):
        return
    found = {b"/metadata": wire.metadata, b"/schema": wire.schema}.get(request.target)
    body = json.dumps(found).encode()
    headers = [("Content-Length", str(len(body))), ("Connection", "close")]
    status = 404 if found is None else 200
    one.sendall(talk.send(h11.Response(status_code=status, headers=headers)) or b"")
    one.sendall(talk.send(h11.Data(data=body)) or b"")


def _talk(one: socket.socket, wire: Wire, data: bytes) -> None:
    talk = WSConnection(ConnectionType.SERVER)
    game = None
    try:
        while data:
            talk.receive_data(data)
            for event in talk.events():
                if isinstance(event, Request):
                    one.sendall(talk.send(AcceptConnection()))
                    if wire.num_sessions >= wire.max_sessions:
                        one.sendall(
                            talk.send(Message(data=json.dumps(error("CAPACITY_REACHED"))))
                            + talk.send(CloseConnection(code=1000))
                        )
                        one.shutdown(socket.SHUT_WR)
                        return
                    game = wire.game()
                    wire.num_sessions += 1
                    wire.num_opened += 1
                elif isinstance(event, TextMessage):
                    requested = json.loads(event.data)
                    out = wire.bend(requested, json.dumps(answer_of(game, requested)))
                    if isinstance(out, str):
                        one.sendall(talk.send(Message(data=out)))
                    else:
                        for raw in [out] if isinstance(out, bytes) else out or ():
                            one.sendall(raw)
                elif isinstance(event, Ping):
                    one.sendall(talk.send(event.response()))
                elif isinstance(event, CloseConnection):
                    return
            data = one.recv(65_536)
    finally:
        wire.num_sessions -= game is not None

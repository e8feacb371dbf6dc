"""Connections of strangers: bounded, each for itself, HTTP/1 alone; real sockets, no node."""

from __future__ import annotations

import errno
import random
import select
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal.page import connections
from shoal.page.connections import Http1Config, serve_connections
from shoal.page.guard import LET_IN
from shoal_ipc import messages as m
from shoal_ipc.client import NodeClient, NodeUnavailable

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
STAYING = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
REFUSED = b"GET /refused HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = STAYING[:-2]
LENGTH = [(b"content-length", b"4")]
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
SOURCES = ("127.0.0.1", "127.0.0.2") if sys.platform == "linux" else ("127.0.0.1",)
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
)


async def answer(scope: Any, _receive: Any, send: Any) -> None:
    """Let everybody in but who asks for /refused."""
    if scope["path"] == "/refused":
        await send({"type": "http.response.start", "status": 403, "headers": LENGTH})
        await send({"type": "http.response.body", "body": b"gone"})
        return
    scope["state"][LET_IN]()
    is_huge = scope["path"] == "/huge"  # more than two sockets hold
    headers = [] if is_huge else LENGTH
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if is_huge:
        await send({"type": "http.response.body", "body": bytes(1 << 25), "more_body": True})
    await send({"type": "http.response.body", "body": b"here"})


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    config = Http1Config()
    config.graceful_timeout, config.keep_alive_timeout = 0.1, 3600.0
    config.accesslog = config.errorlog = None
    stop = trio.Event()
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_connections, answer, config, listener, stop.wait)
            yield listener.socket.getsockname()[1]
            stop.set()


async def said(port: int, data: bytes) -> bytes:
    """Return all that is answered until the other end closes."""
    found = b""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        try:
            await stream.send_all(data)
            while part := await stream.receive_some():
                found += part
        except trio.BrokenResourceError:
            pass
    return found


async def until_answered(port: int) -> None:
    while b"here" not in await said(port, REQUEST):  # noqa: ASYNC110 - the other end's to say
        await trio.sleep(0.01)


async def opened(port: int, data: bytes, source: str | None = None) -> trio.SocketStream:
    """Open a connection, send something and wait for the answer, if one is due."""
    stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=source)
    if data.endswith(b"\r\n\r\n"):
        await asked(stream, data)
    else:
        await stream.send_all(data)
    return stream


async def asked(stream: trio.SocketStream, data: bytes) -> bytes:
    """Send a request; return the whole answer, or what came before the other end closed."""
    await stream.send_all(data)
    found = b""
    while not found.endswith((b"here", b"gone")) and (part := await stream.receive_some()):
        found += part
    return found


async def is_open(stream: trio.SocketStream) -> bool:
    """Whether the other end has not closed a connection, as far as this one knows by now."""
    try:
        while select.select([stream.socket], [], [], 0)[0]:
            if not await stream.receive_some():
                return False
    except trio.BrokenResourceError:
        return False
    return True


async def test_one_address_takes_so_many_and_a_closed_one_makes_room_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_OF_ONE", 3)
    async with served() as port:
        held = [await opened(port, STAYING) for _ in range(3)]
        assert await said(port, REQUEST) == b""
        await held.pop().aclose()
        await until_answered(port)
        for stream in held:
            await stream.aclose()


async def test_all_together_take_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    async with served() as port:
        held = [await opened(port, STAYING) for _ in range(2)]
        assert await said(port, REQUEST) == b""
        await held.pop().aclose()
        await until_answered(port)
        await held.pop().aclose()


@pytest.mark.parametrize("data", [b"", HALF, REFUSED], ids=["silent", "half", "refused"])
async def test_who_was_not_let_in_keeps_nobody_out(data: bytes) -> None:
    """More than one process may hold, beside a browser that is there and one that comes."""
    async with served() as port, await opened(port, STAYING) as browser:
        held = [await opened(port, data) for _ in range(connections.MAX_OF_ONE + 24)]
        assert b"here" in await said(port, REQUEST)
        assert b"here" in await asked(browser, STAYING)
        assert sum([await is_open(stream) for stream in held]) < connections.MAX_OF_ONE
        assert await is_open(held[-1])
        for stream in held:
            await stream.aclose()


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 20))]
)
async def test_whoever_comes_and_goes_a_browser_gets_in(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers of two addresses open, stay, ask and leave in any order, between the browser's."""
    dice = random.Random(seed)
    monkeypatch.setattr(connections, "MAX_OF_ONE", 4)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 6)
    strangers = list[trio.SocketStream]()
    browsers = list[trio.SocketStream]()
    async with served() as port, trio.open_nursery() as nursery:
        for _ in range(60):
            act = dice.randrange(6)
            if act <= 2:
                data = dice.choice([b"", HALF[: dice.randrange(len(HALF))], HALF, REFUSED])
                strangers.append(await opened(port, data, dice.choice(SOURCES)))
            elif act == 3 and strangers:
                await strangers.pop(dice.randrange(len(strangers))).aclose()
            elif act == 4 and len(browsers) < 3:
                browsers.append(await opened(port, STAYING))
            elif act == 5 and browsers:
                await browsers.pop(dice.randrange(len(browsers))).aclose()
            if dice.random() < 0.3:  # one more beside a burst of strangers
                nursery.start_soon(opened, port, HALF, dice.choice(SOURCES))
            await until_answered(port)
            for one in browsers:
                assert b"here" in await asked(one, STAYING), "a browser is displaced"
            assert sum([await is_open(one) for one in [*strangers, *browsers]]) <= 6
        for one in [*strangers, *browsers]:
            await one.aclose()


async def test_who_takes_nothing_of_its_answer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_OF_ONE", 1)
    monkeypatch.setattr(connections, "TAKE_S", 0.05)
    async with served() as port, await trio.open_tcp_stream("127.0.0.1", port) as stuck:
        await stuck.send_all(REQUEST.replace(b"GET /", b"GET /huge"))
        await until_answered(port)


async def test_one_who_takes_nothing_keeps_no_page_from_ending() -> None:
    async with served() as port:
        stuck = await trio.open_tcp_stream("127.0.0.1", port)
        await stuck.send_all(REQUEST.replace(b"GET /", b"GET /huge"))
        await stuck.receive_some(1)
    await stuck.aclose()


@pytest.mark.parametrize("data", [HTTP_2, UPGRADE], ids=["at once", "by upgrade"])
async def test_a_connection_that_turns_to_http_2_ends(data: bytes) -> None:
    async with served() as port:
        assert b"here" not in await said(port, data)
        await until_answered(port)


async def test_what_breaks_a_connection_breaks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as port:
        with monkeypatch.context() as patched:
            patched.setattr(connections._OpenConnection, "_read_data", lambda _self: 1 / 0)
            assert await said(port, REQUEST) == b""
        await until_answered(port)


def test_without_a_descriptor_there_is_no_node_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    client = NodeClient(tmp_path / "x", role=m.Role.INSPECTOR, timeout_seconds=1)
    monkeypatch.setattr(socket, "socket", none_left)
    assert not client.ensure()
    with pytest.raises(NodeUnavailable):
        client.call(m.Inspect(view="status", options_json="{}"), m.InspectReply)

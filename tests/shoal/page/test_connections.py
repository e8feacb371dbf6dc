"""Connections of unknown clients: limited and independent; real sockets, no node."""

from __future__ import annotations

import errno
import random
import select
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from shoal.page import server
from shoal.page.answers import Pages
from shoal.page.board import Board
from shoal.page.guard import HEADERS, PageReply
from shoal.page.server import PageServer
from shoal_ipc import messages as m
from shoal_ipc.client import NodeClient, NodeUnavailable
from shoal_settings.web_address import WebAddress
from tests.support.servers import open_server

TOKEN = "t0k-en_" * 6
STAYING = f"GET / HTTP/1.1\r\nHost: [::1]\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
REQUEST = STAYING.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
REFUSED = b"GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n"
HUGE = REQUEST.replace(b"GET /", b"GET /huge")
HALF = STAYING[:-2]
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
SOURCES = ("127.0.0.1", "127.0.0.2") if sys.platform == "linux" else ("127.0.0.1",)
HERE = b" 200 OK"


class HugePages(Pages):
    """The page, and an answer that is more than two sockets hold."""

    def answer(self, path: str, query: str) -> PageReply:
        return PageReply(200, bytes(1 << 25)) if path == "/huge" else super().answer(path, query)


@contextmanager
def served(patch: pytest.MonkeyPatch) -> Iterator[int]:
    patch.setattr("secrets.token_urlsafe", lambda _num: TOKEN)
    address = WebAddress(host="127.0.0.1", port=0, may_move=False)
    board = Board([])
    made = PageServer(board, address)
    made.pages = HugePages(board)
    with open_server(made):
        yield made.server_port


async def exchange(port: int, data: bytes) -> bytes:
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
    while HERE not in await exchange(port, REQUEST):  # noqa: ASYNC110 - decided by the other end
        await trio.sleep(0.01)


async def opened(port: int, data: bytes, source: str | None = None) -> trio.SocketStream:
    """Open a connection, send something and wait for the answer, if one is due."""
    stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=source)
    if data.endswith(b"\r\n\r\n"):
        await request(stream, data)
    else:
        await stream.send_all(data)
    return stream


async def request(stream: trio.SocketStream, data: bytes) -> bytes:
    """Send a request; return the whole answer, or what came before the other end closed."""
    await stream.send_all(data)
    found = b""
    while not _is_whole(found) and (part := await stream.receive_some()):
        found += part
    return found


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
    return length.isdigit() and len(body) == int(length)


async def is_open(stream: trio.SocketStream) -> bool:
    """Whether the other end has not closed a connection, as far as this one knows by now."""
    try:
        while select.select([stream.socket], [], [], 0)[0]:
            if not await stream.receive_some():
                return False
    except trio.BrokenResourceError:
        return False
    return True


async def test_one_address_has_a_limit_and_a_closed_connection_frees_a_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MAX_PER_ADDRESS", 3)
    with served(monkeypatch) as port:
        streams = [await opened(port, STAYING) for _ in range(3)]
        assert await exchange(port, REQUEST) == b""
        await streams.pop().aclose()
        await until_answered(port)
        for stream in streams:
            await stream.aclose()


async def test_all_connections_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    with served(monkeypatch) as port:
        streams = [await opened(port, STAYING, source) for source in SOURCES]
        streams += [await opened(port, STAYING) for _ in range(2 - len(streams))]
        assert await exchange(port, REQUEST) == b""
        await streams.pop().aclose()
        await until_answered(port)
        await streams.pop().aclose()


@pytest.mark.parametrize("data", [b"", HALF, REFUSED], ids=["silent", "half", "refused"])
async def test_unauthorized_connections_make_room(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More connections than one process may hold, with one browser connected and one to come."""
    with served(monkeypatch) as port:
        browser = await opened(port, STAYING)
        streams = [await opened(port, data) for _ in range(server.MAX_PER_ADDRESS + 24)]
        assert HERE in await exchange(port, REQUEST)
        assert HERE in await request(browser, STAYING)
        assert sum([await is_open(stream) for stream in streams]) < server.MAX_PER_ADDRESS
        assert await is_open(streams[-1])
        for stream in [*streams, browser]:
            await stream.aclose()


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))]
)
async def test_a_browser_always_gets_a_connection(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of two addresses connect, wait, send and disconnect in any order."""
    dice = random.Random(seed)
    monkeypatch.setattr(server, "MAX_PER_ADDRESS", 4)
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 6)
    clients = list[trio.SocketStream]()
    browsers = list[trio.SocketStream]()
    with served(monkeypatch) as port:
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                act = dice.randrange(6)
                if act <= 2:
                    data = dice.choice([b"", HALF[: dice.randrange(len(HALF))], HALF, REFUSED])
                    clients.append(await opened(port, data, dice.choice(SOURCES)))
                elif act == 3 and clients:
                    await clients.pop(dice.randrange(len(clients))).aclose()
                elif act == 4 and len(browsers) < 3:
                    browsers.append(await opened(port, STAYING))
                elif act == 5 and browsers:
                    await browsers.pop(dice.randrange(len(browsers))).aclose()
                if dice.random() < 0.3:  # one more during a burst of connections
                    nursery.start_soon(opened, port, HALF, dice.choice(SOURCES))
                await until_answered(port)
                for one in browsers:
                    assert HERE in await request(one, STAYING), "a browser is displaced"
                assert sum([await is_open(one) for one in [*clients, *browsers]]) <= 6
        for one in [*clients, *browsers]:
            await one.aclose()


async def test_a_client_that_does_not_read_its_answer_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MAX_PER_ADDRESS", 1)
    monkeypatch.setattr(server, "REPLY_S", 0.2)
    monkeypatch.setattr(server, "_STUCK_MS", 600_000)  # not the kernel ends it
    with served(monkeypatch) as port:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stuck:
            await stuck.send_all(HUGE)
            await stuck.receive_some(1)
            await until_answered(port)


@pytest.mark.parametrize(
    "data",
    [HTTP_2, b"\0" * 40_000, b"GET /\r\n\r\n", STAYING[:-2] + b"X: " + b"x" * 20_000],
    ids=["HTTP/2", "no words", "no version", "a head without end"],
)
async def test_what_no_browser_sends_ends_its_connection(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(monkeypatch) as port:
        assert HERE not in await exchange(port, data)
        await until_answered(port)


async def test_a_body_is_not_taken_for_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that keeps one connection for many readers would hand its answer to another."""
    with served(monkeypatch) as port:
        head = STAYING.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(STAYING))
        for data in (head + STAYING, head.replace(b"GET", b"POST") + STAYING):
            assert (await exchange(port, data)).count(b"HTTP/1.1 ") == 1


async def test_every_answer_says_what_may_be_done_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as port:
        for data, code in (
            (REQUEST, 200),
            (REQUEST.replace(b"GET", b"HEAD"), 200),
            (REQUEST.replace(b"GET", b"POST"), 405),
            (REQUEST.replace(b"GET", b"FOO"), 501),
            (REQUEST.replace(b"GET /", b"GET /nowhere"), 404),
            (REFUSED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), 401),
        ):
            head, _, body = (await exchange(port, data)).partition(b"\r\n\r\n")
            assert int(head.split()[1]) == code
            for name, value in HEADERS.items():
                assert f"{name}: {value}".encode() in head
            assert bool(body) == (b"HEAD" not in data)
            assert (b"<html" in body) == (code == 200 and b"HEAD" not in data)


async def test_requests_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FEW", 1)
    with served(monkeypatch) as port:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stuck:
            await stuck.send_all(HUGE)
            await stuck.receive_some(1)
            assert b" 503 " in await exchange(port, REQUEST)
        await until_answered(port)


async def test_what_breaks_a_connection_breaks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as port:
        with monkeypatch.context() as patched:
            patched.setattr(Pages, "answer", lambda *_: 1 / 0)
            assert await exchange(port, REQUEST) == b""
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

"""A request ends, whatever the server does: by its size, by its deadline, or on a stop."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import socket
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

from shoal_policy.generation.replies import BadReplyError
from shoal_policy.generation.requests import InferenceServer
from tests.policy.model_server import ModelServer

REPLY = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'8;some=extension\r\n{"a": 1}\r\n0\r\nTrailing: header\r\n\r\n'
)
EVERY = 12
"""Bytes between two places of the reply from which it is slow."""


def server(
    address: str, seconds: float, stop: Callable[[], bool] = lambda: False
) -> InferenceServer:
    return InferenceServer(
        address, api_key=None, request_seconds=seconds, connections=1, should_stop=stop
    )


@contextlib.contextmanager
def saying(
    what: Callable[[], Iterable[bytes]], received: list[bytes] | None = None
) -> Iterator[str]:
    """The address of a server that says something, part by part, to any client."""
    over = threading.Event()

    def answer(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            requested = connection.recv(1 << 16)
            if received is not None:
                received.append(requested)
            for part in what():
                connection.sendall(part)
                if over.wait(0.02):
                    return

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        over.set()


def test_a_reply_is_read_no_further_than_its_bound() -> None:
    with ModelServer(lambda handler, _request: handler.reply(200, b" " * 5_000) is None) as model:  # type: ignore[func-returns-value]
        one = server(model.base_url, 20.0)
        assert len(one.post(model.base_url, {}, 5_000).body) == 5_000
        with pytest.raises(BadReplyError, match="too large"):
            one.post(model.base_url, {}, 4_999)


def test_a_reply_that_comes_in_small_parts_is_whole() -> None:
    with saying(lambda: [REPLY[i : i + EVERY] for i in range(0, len(REPLY), EVERY)]) as address:
        assert server(address, 20.0).post(address, {}).body == b'{"a": 1}'


@pytest.mark.parametrize("again", [b"a", b"\r\n", REPLY[:25]], ids=["letter", "line", "continue"])
@pytest.mark.parametrize("place", range(0, len(REPLY), EVERY))
def test_a_reply_that_never_ends_is_given_up_wherever_it_slows_down(
    place: int, again: bytes
) -> None:
    """A byte now and then is no sign of life: each wait for one is short, their sum is not."""

    def what() -> Iterable[bytes]:
        return itertools.chain([REPLY[:place]], itertools.repeat(again))

    # Some of these are no HTTP, and refused as such; all of them end.
    with saying(what) as address, contextlib.suppress(Exception):
        server(address, 0.1).post(address, {})


def test_one_that_is_given_up_leaves_its_connection_to_the_next() -> None:
    slow = threading.Event()

    def what() -> Iterable[bytes]:
        if slow.is_set():
            return [REPLY]
        slow.set()
        return itertools.chain([REPLY[:30]], itertools.repeat(b"a"))

    with saying(what) as address:
        one = server(address, 0.5)
        with pytest.raises(BadReplyError, match="took too long"):
            one.post(address, {})
        assert one.post(address, {}).status == 200


def test_a_stop_ends_a_request() -> None:
    with saying(lambda: itertools.repeat(b"a")) as address:
        requested = iter(range(10))
        with pytest.raises(BadReplyError, match="stop"):
            server(address, 600.0, lambda: next(requested) > 1).post(address, {})


def test_what_is_packed_is_not_unpacked() -> None:
    """Eight megabytes of reply may be as many gigabytes of text."""
    packed = gzip.compress(bytes(1 << 20))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    with saying(lambda: [head.encode() + packed]) as address:
        assert server(address, 20.0).post(address, {}).body == packed


def test_no_compression_is_requested_from_a_server() -> None:
    """Honest ones do what they are asked, and the reply would not be read."""
    received: list[bytes] = []
    with saying(lambda: [REPLY], received) as address:
        server(address, 20.0).post(address, {})
    [request] = received
    assert b"accept-encoding: identity\r\n" in request.lower()

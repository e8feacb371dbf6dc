"""The log describes failed streams in plain words, and omits peers that merely disconnected."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from google.protobuf.message import DecodeError
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import ConnectionClosedError, IncompleteReadError
from libp2p.network.stream.exceptions import StreamEOF, StreamReset
from libp2p.stream_muxer.exceptions import MuxedConnUnavailable, MuxedStreamError

from shoal_p2p.net.streams import MalformedFrameError, log_failure
from tests.support.nodes import open_test_host, until

PROTOCOL = TProtocol("/failing/1")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StreamEOF(), ""),
        (StreamReset(), ""),
        (MuxedStreamError("the stream is closed for sending"), ""),
        (MuxedConnUnavailable(), ""),
        (ConnectionClosedError("x"), ""),
        (IncompleteReadError("x"), ""),
        (trio.BrokenResourceError(), ""),
        (trio.TooSlowError(), "took too long: the stream is closed; the peer may try again"),
        (MalformedFrameError("a frame of 9 bytes"), "failed (a frame of 9 bytes): the stream is"),
        (DecodeError("not an RPC"), "failed (not an RPC): the stream is closed, nothing else"),
        (ValueError(), "failed (ValueError): the stream is closed, nothing else"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_the_log_of_a_failed_stream(
    error: Exception, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "shoal_p2p")
    log_failure("serving a stream of", "a peer", error)
    (row,) = caplog.records
    assert (row.levelno >= logging.INFO) == bool(expected)
    assert row.getMessage().startswith("serving a stream of a peer ")
    assert expected in row.getMessage()
    assert not expected or "Error()" not in row.getMessage()


async def test_an_error_in_one_stream_affects_no_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "shoal_p2p")

    async def fail(stream: INetStream) -> None:
        await stream.read(1)
        raise ValueError

    async with open_test_host() as one, open_test_host() as two:
        two.libp2p_host.set_stream_handler(PROTOCOL, fail)
        await one.dial(two.listen_addrs()[0])
        stream: Any = await one.open_stream(two.peer_id, PROTOCOL)
        await stream.write(b"x")
        await until(lambda: any("serving a stream of" in line for line in caplog.messages))
        assert two.is_connected(one.peer_id)

"""The log tells of a stream that fails in words for people, and not of a peer that went."""

from __future__ import annotations

import logging

import pytest
import trio
from google.protobuf.message import DecodeError
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import ConnectionClosedError, IncompleteReadError
from libp2p.network.stream.exceptions import StreamEOF, StreamReset
from libp2p.stream_muxer.exceptions import MuxedConnUnavailable, MuxedStreamError

from shoal_p2p.net.address import parse_peer_address
from shoal_p2p.net.streams import MalformedFrameError
from tests.support.nodes import open_test_host, until

PROTOCOL = TProtocol("/failing/1")


@pytest.mark.parametrize(
    ("error", "said"),
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
async def test_a_stream_that_fails(
    error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "shoal_p2p")
    served = 0

    async def fail(stream: INetStream) -> None:
        nonlocal served
        await stream.read(1)
        served += 1
        raise error

    async with open_test_host() as one, open_test_host() as two:
        two.libp2p_host.set_stream_handler(PROTOCOL, fail)
        address = two.listen_addrs()[0]
        await one.dial(address)
        peer = one.libp2p_host.get_connected_peers()[0]
        assert str(peer) == parse_peer_address(address).peer_id
        stream = await one.libp2p_host.new_stream(peer, [PROTOCOL])
        await stream.write(b"x")
        await until(lambda: any("serving a stream of" in line for line in caplog.messages))
        assert two.is_connected(one.peer_id), "one stream's fault ends nothing else"
    told = [row.getMessage() for row in caplog.records if row.levelno >= logging.INFO]
    about = [line for line in told if "stream" in line]
    assert served == 1
    assert len(about) == (1 if said else 0), about
    assert all(said in line and one.peer_id in line and "Error()" not in line for line in about)

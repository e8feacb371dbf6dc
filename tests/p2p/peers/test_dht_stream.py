"""What strangers of the DHT say comes without signed records, whichever side they are on."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from libp2p.custom_types import TProtocol
from libp2p.kad_dht.common import PROTOCOL_ID
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.utils.varint import encode_varint_prefixed, read_varint_prefixed_bytes_limited

from p2p.net.address import to_libp2p_id
from p2p.net.host import Libp2pHost
from p2p.net.streams import MalformedFrameError
from p2p.peers.dht import _DhtHost
from p2p.peers.dht_stream import MAX_MESSAGE_BYTES, RecordlessStream, without_records
from tests.p2p.peers.test_dht import taking_part
from tests.support.nodes import open_test_host

MOST = 1 << 22
SAID = Message(
    type=Message.FIND_NODE,
    key=b"k" * 32,
    senderRecord=b"no record",
    closerPeers=[Message.Peer(id=b"closer", addrs=[b"a"], signedRecord=b"nor this")],
    providerPeers=[Message.Peer(id=b"provider", addrs=[b"b"], signedRecord=b"nor that")],
)
BARE = Message(
    type=Message.FIND_NODE,
    key=b"k" * 32,
    closerPeers=[Message.Peer(id=b"closer", addrs=[b"a"])],
    providerPeers=[Message.Peer(id=b"provider", addrs=[b"b"])],
)
RAW = SAID.SerializeToString()


class _Bytes:
    """A stream that brings bytes by the piece."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._data, self._piece = data, piece

    async def read(self, n: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        size = self._piece if n is None else min(n, self._piece)
        taken, self._data = self._data[:size], self._data[size:]
        return taken


def test_records_are_left_out_and_nothing_else() -> None:
    assert Message.FromString(without_records(RAW)) == BARE


@given(st.binary(max_size=200))
def test_any_bytes_stay_a_message_or_stay_as_they_are(raw: bytes) -> None:
    bare = without_records(raw)
    assert bare == raw or not Message.FromString(bare).HasField("senderRecord")


@pytest.mark.parametrize("piece", [1, 7, 1000])
async def test_a_stream_brings_message_after_message_and_ends(piece: int) -> None:
    whole = encode_varint_prefixed(RAW) + encode_varint_prefixed(b"") + encode_varint_prefixed(RAW)
    stream: Any = RecordlessStream(_Bytes(whole, piece))  # type: ignore[arg-type]
    said = [await read_varint_prefixed_bytes_limited(stream, MOST) for _ in range(3)]
    assert [Message.FromString(one) for one in said] == [BARE, Message(), BARE]
    assert await stream.read(1) == b""


async def test_a_message_of_megabytes_is_not_taken() -> None:
    long = encode_varint_prefixed(bytes(MAX_MESSAGE_BYTES + 1))
    stream: Any = RecordlessStream(_Bytes(long, 1 << 16))  # type: ignore[arg-type]
    with pytest.raises(MalformedFrameError):
        await stream.read(1)


async def test_who_asks_has_an_answer_whatever_its_record_is() -> None:
    """The library ends the stream of a record that it cannot read."""
    async with open_test_host() as one, taking_part(one, []), open_test_host() as two:
        stream = await _opened(two, one)
        await stream.write(encode_varint_prefixed(RAW))
        with trio.fail_after(10):
            answer = await read_varint_prefixed_bytes_limited(stream, MOST)
        assert Message.FromString(answer).type == Message.FIND_NODE


async def test_who_is_asked_is_read_without_records() -> None:
    async def answer(stream: Any) -> None:
        await stream.write(encode_varint_prefixed(RAW))
        await stream.close()

    async with open_test_host() as one, open_test_host() as two:
        facade = _DhtHost(one, lambda _address: False)
        two.libp2p_host.set_stream_handler(PROTOCOL_ID, answer)
        await one.dial(two.listen_addrs()[0])
        stream = await facade.new_stream(to_libp2p_id(two.peer_id), [PROTOCOL_ID])
        with trio.fail_after(10):
            said = await read_varint_prefixed_bytes_limited(stream, MOST)
        assert Message.FromString(said) == BARE


async def _opened(host: Libp2pHost, other: Libp2pHost) -> Any:
    await host.dial(other.listen_addrs()[0])
    return await host.libp2p_host.new_stream(to_libp2p_id(other.peer_id), [TProtocol(PROTOCOL_ID)])

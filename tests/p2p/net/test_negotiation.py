"""Limits on what a negotiating peer can make the other side hold and answer."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import IOException
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.protocol_muxer.exceptions import MultiselectClientError, MultiselectError
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator

from shoal_p2p.net.negotiation import (
    MAX_LINES,
    BoundedMultiselect,
    BoundedMultiselectClient,
)
from shoal_p2p.net.streams import SHORT_BYTES
from tests.p2p.net.test_receive_windows import open_attack
from tests.support.network import port_of
from tests.support.nodes import open_test_host, until

GREETING = b"\x13/multistream/1.0.0\n"
ENDLESS = b"\xff\xff\xff\xff\x0f"
"""The length of a line of four gigabytes."""
NAME = TProtocol("/here/1")


class _ScriptedStream:
    """The other side of a negotiation: repeats its output until this side ends it."""

    def __init__(self, output: bytes, *, again: bytes = b"") -> None:
        self._output, self._again = bytearray(output), again
        self.taken = 0
        self.answered = bytearray()

    async def read(self, n: int) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._output and not self._again:
            raise StreamEOF
        while len(self._output) < min(n, 1 << 16) and self._again:
            self._output += self._again
        piece = bytes(self._output[:n])
        del self._output[:n]
        self.taken += len(piece)
        assert self.taken < 1 << 20, "it is heard without an end"
        return piece

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.answered += data


async def _negotiate(output: _ScriptedStream) -> Any:
    both: Any = output
    return await BoundedMultiselect({NAME: None}).negotiate(MultiselectCommunicator(both))


async def _propose(output: _ScriptedStream) -> Any:
    both: Any = output
    return await BoundedMultiselectClient().select_one_of([NAME], MultiselectCommunicator(both))


async def test_an_endless_line_is_not_read() -> None:
    for output in (
        _ScriptedStream(ENDLESS, again=b"x"),
        _ScriptedStream(GREETING + ENDLESS, again=b"x"),
    ):
        with pytest.raises(MultiselectError):
            await _negotiate(output)
        assert output.taken <= len(GREETING + ENDLESS)


async def test_an_endless_answer_is_not_read() -> None:
    for output in (
        _ScriptedStream(ENDLESS, again=b"x"),
        _ScriptedStream(GREETING + ENDLESS, again=b"x"),
    ):
        with pytest.raises(MultiselectClientError):
            await _propose(output)
        assert output.taken <= len(GREETING + ENDLESS)


@pytest.mark.parametrize("line", [b"\x02x\n", b"\x03ls\n"])
async def test_endless_proposals_are_answered_a_few_times(line: bytes) -> None:
    output = _ScriptedStream(GREETING, again=line)
    with pytest.raises(MultiselectError):
        await _negotiate(output)
    assert output.answered.count(b"\n") <= 2 * MAX_LINES


async def test_the_last_of_many_versions_can_be_negotiated() -> None:
    others = b"".join(b"\x08/here/%x\n" % n for n in range(2, MAX_LINES))
    output = _ScriptedStream(GREETING + others + b"\x08/here/1\n")
    assert await _negotiate(output) == (NAME, None)


@given(st.binary(max_size=64), st.booleans())
def test_any_input_ends_in_an_agreement_or_a_negotiation_error(words: bytes, greets: bool) -> None:
    async def talk() -> None:
        for side, error in ((_negotiate, MultiselectError), (_propose, MultiselectClientError)):
            output = _ScriptedStream(GREETING * greets + words, again=words)
            with suppress(error, IOException):
                await side(output)
            assert output.taken <= MAX_LINES * (SHORT_BYTES + 10)

    trio.run(talk)


async def test_streams_are_negotiated_within_the_limits() -> None:
    async with open_attack() as attack:
        stream = await attack.mine.open_stream()
        await stream.write(GREETING + ENDLESS)
        await until(lambda: stream.reset_received, patience_s=5.0)  # sooner than its deadline
        assert not attack.is_cut


async def test_unauthenticated_peers_are_negotiated_with_within_the_limits() -> None:
    async with open_test_host() as host:
        tcp = await trio.open_tcp_stream("127.0.0.1", port_of(host))
        async with tcp:
            await tcp.send_all(GREETING + ENDLESS)
            with trio.fail_after(5.0):
                while await tcp.receive_some(4096):
                    pass

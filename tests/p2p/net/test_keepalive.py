"""Pings of a connection, and when it is closed."""

from __future__ import annotations

import struct
from typing import Any
from unittest import mock

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from libp2p.peer.id import ID
from libp2p.stream_muxer.yamux.yamux import FLAG_ACK, FLAG_SYN, TYPE_PING, YAMUX_HEADER_FORMAT

from shoal_p2p.net.yamux import KeepaliveSettings, KeepaliveYamux
from tests.support.doubles.channel import yamux_frame
from tests.support.doubles.network import in_virtual_time

SETTINGS = KeepaliveSettings()
NOTICED_S = SETTINGS.ping_interval_s + SETTINGS.ping_deadline_s
A_MOMENT_S = 0.3


class _Peer:
    """Sends data at given times, answers pings until a given time, and records them."""

    is_initiator = False

    def __init__(self, says_at: list[float], answers_until: float) -> None:
        self._says_at = sorted(says_at)
        self._answers_until = answers_until
        self._send, self._received = trio.open_memory_channel[bytes](1000)
        self.pinged_at: list[float] = []
        self.data_at = [0.0]

    async def talk(self) -> None:
        for at in self._says_at:
            await trio.sleep_until(at)
            self._say(yamux_frame(TYPE_PING, FLAG_SYN, 0, 7))

    def _say(self, frame: bytes) -> None:
        self.data_at.append(trio.current_time())
        self._send.send_nowait(frame)

    async def receive(self) -> bytes:
        return await self._received.receive()

    def start_send(self, data: bytes) -> bool:
        _version, kind, flags, _stream, number = struct.unpack(YAMUX_HEADER_FORMAT, data)
        assert kind == TYPE_PING
        if flags & FLAG_SYN:
            self.pinged_at.append(trio.current_time())
            if trio.current_time() < self._answers_until:
                self._say(yamux_frame(TYPE_PING, FLAG_ACK, 0, number))
        return True


def _lived(peer: _Peer, seconds: float) -> float | None:
    """Return when the connection was closed; None if it was not within the given seconds."""
    cut_at: list[float] = []

    async def main() -> None:
        below: Any = peer
        muxed = KeepaliveYamux(below, ID(b"peer"), keepalive=SETTINGS)

        async def measure(scope: trio.CancelScope) -> None:
            await muxed._measure_rtt_loop()
            scope.cancel()

        with trio.move_on_after(seconds) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(muxed.handle_incoming)
                nursery.start_soon(peer.talk)
                nursery.start_soon(measure, scope)

    with mock.patch("shoal_p2p.net.yamux.abort", lambda _muxed: cut_at.append(trio.current_time())):
        in_virtual_time(main)
    return cut_at[0] if cut_at else None


def test_an_active_peer_is_pinged_only_for_its_latency() -> None:
    peer = _Peer([second * SETTINGS.ping_interval_s / 2 for second in range(120)], 1e9)
    assert _lived(peer, 600.0) is None
    assert 600 / SETTINGS.latency_interval_s <= len(peer.pinged_at) <= 12


def test_a_silent_peer_is_pinged_at_each_interval() -> None:
    peer = _Peer([], 1e9)
    assert _lived(peer, 600.0) is None
    assert len(peer.pinged_at) >= 600 / SETTINGS.ping_interval_s - 1


@settings(max_examples=60)
@given(
    says_at=st.lists(st.floats(0, 200), max_size=40),
    answers_until=st.sampled_from([0.0, 1.0, 30.0, 75.0, 1e9]),
)
def test_only_silence_closes_a_connection_and_in_time(
    says_at: list[float], answers_until: float
) -> None:
    peer = _Peer(says_at, answers_until)
    cut_at = _lived(peer, 400.0)
    data_at = [at for at in peer.data_at if cut_at is None or at <= cut_at]
    ends_at = 400.0 if cut_at is None else cut_at
    silences = [b - a for a, b in zip(data_at, [*data_at[1:], ends_at], strict=True)]
    assert max(silences) <= NOTICED_S + A_MOMENT_S
    if cut_at is not None:
        assert silences[-1] >= SETTINGS.ping_deadline_s
        assert cut_at >= answers_until

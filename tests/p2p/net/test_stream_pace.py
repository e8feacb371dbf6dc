"""The rate at which a connection may open streams: above it they are accepted later."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from libp2p.peer.id import ID
from libp2p.stream_muxer.yamux.yamux import FLAG_RST, FLAG_SYN, TYPE_WINDOW_UPDATE

from shoal_p2p.fair.buckets import BucketGroup, Rate
from shoal_p2p.net import yamux
from shoal_p2p.net.yamux import (
    CONNECTION_STREAM_RATE,
    SOURCE_STREAM_RATE,
    KeepaliveSettings,
    KeepaliveUpgrader,
    KeepaliveYamux,
)
from tests.p2p.net.test_receive_windows import open_attack
from tests.support.doubles.channel import FakeChannel, yamux_frame
from tests.support.nodes import until

HONEST_A_SECOND = 20


def _opening(stream_id: int) -> bytes:
    return yamux_frame(TYPE_WINDOW_UPDATE, FLAG_SYN, stream_id)


@pytest.mark.virtual_time
async def test_streams_beyond_the_pace_are_accepted_later() -> None:
    below: Any = FakeChannel(b"".join(map(_opening, range(1, 1200, 2))))
    muxed = KeepaliveYamux(below, ID(b"peer"), keepalive=KeepaliveSettings())
    start = trio.current_time()
    muxed.set_stream_pace(upgrader().pace("net", start))
    accepted: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(muxed.handle_incoming)
        for _ in range(600):
            await muxed.accept_stream()
            accepted.append(trio.current_time() - start)
            for known in list(muxed.streams.values())[:-12]:
                muxed.drop_unread(known)
        nursery.cancel_scope.cancel()
    assert accepted[int(CONNECTION_STREAM_RATE.burst) - 1] == 0.0
    for number, at in enumerate(accepted):
        assert number <= CONNECTION_STREAM_RATE.burst + at * CONNECTION_STREAM_RATE.per_second + 1
    assert accepted[-1] == pytest.approx(200 / CONNECTION_STREAM_RATE.per_second, rel=0.1)


def upgrader() -> KeepaliveUpgrader:
    return KeepaliveUpgrader({}, {}, KeepaliveSettings())


def test_new_connections_of_a_network_share_its_burst() -> None:
    one, opened = upgrader(), 0
    for _ in range(10):
        pace = one.pace("net", 0.0)
        opened += _open_all(pace, 0.0)
    assert opened == SOURCE_STREAM_RATE.burst + 1
    assert _open_all(one.pace("another", 0.0), 0.0) == CONNECTION_STREAM_RATE.burst + 1


def _open_all(pace: BucketGroup, now: float) -> int:
    opened = 0
    while not pace.wait_s(0.0, now):
        pace.debit(1.0, now)
        opened += 1
        assert opened < 10_000, "without an end"
    return opened


def test_honest_request_rates_never_wait() -> None:
    pace = upgrader().pace("net", 0.0)
    for second in range(600):
        for number in range(HONEST_A_SECOND):
            now = second + number / HONEST_A_SECOND
            assert pace.wait_s(0.0, now) == 0.0
            pace.debit(1.0, now)


async def test_a_connection_that_opens_too_many_streams_is_slowed_down_and_survives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(yamux, "CONNECTION_STREAM_RATE", Rate(burst=20.0, per_second=100.0))
    async with open_attack() as attack:
        for stream_id in range(1001, 1201, 2):
            flags = FLAG_SYN | FLAG_RST
            await attack.send(TYPE_WINDOW_UPDATE, flags, stream_id, 0, b"")
        await until(lambda: attack.theirs._is_pace_logged)
        assert await attack.attacker.ping(attack.victim.peer_id) > 0
        assert not attack.is_cut

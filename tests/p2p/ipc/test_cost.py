"""What a peer costs: rates of the last minute, and no trouble with a process that is gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from shoal_base.waits import MINUTE_S
from shoal_p2p.ipc.cost import CostMeter, GrowthRate, bytes_below
from shoal_p2p.net.traffic import Traffic

GONE = 2**22 + 1
"""Above what Linux gives to a process."""


def test_a_rate_is_that_of_the_last_minute() -> None:
    rate = GrowthRate(0.0, 0.0)
    assert rate.per_second is None
    for second in range(1, 101):
        rate.add(second, 10.0 * second)
    assert rate.per_second == 10.0
    for second in range(101, 200):
        rate.add(second, 1000.0)
    assert rate.per_second == 0.0
    assert rate.seconds == MINUTE_S
    assert len(rate._seen) <= MINUTE_S + 2


@pytest.mark.parametrize("apart", [0.001, 0.02, 0.34, 0.51, 0.99])
def test_frequent_queries_keep_at_most_one_minute(apart: float) -> None:
    rate, most = GrowthRate(0.0, 0.0), 0
    for step in range(3000):
        rate.add(step * apart, step)
        most = max(most, len(rate._seen))
    assert rate.per_second == pytest.approx(1 / apart, rel=0.02)
    assert most <= 2 * MINUTE_S + 3


def test_a_rare_query_covers_the_time_since_the_last_query() -> None:
    rate = GrowthRate(0.0, 0.0)
    rate.add(1000.0, 500.0)
    assert rate.per_second == 0.5
    rate.add(3000.0, 500.0)
    assert rate.per_second == 0.0


def test_a_counter_that_decreases_is_taken_as_restarted() -> None:
    rate = GrowthRate(0.0, 100.0)
    rate.add(10.0, 5.0)
    assert rate.per_second is None
    rate.add(20.0, 25.0)
    assert rate.per_second == 2.0


async def test_what_it_costs(tmp_path: Path, mock_clock: MockClock) -> None:
    traffic = Traffic()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"x" * 100_000)
    meter = CostMeter(traffic, tmp_path, in_thread=trio.to_thread.run_sync)
    mock_clock.jump(10)
    traffic.bytes_in, traffic.bytes_out = 20_000, 5_000
    found = await meter.view({"node": os.getpid(), "worker": None, "trainer": GONE})
    assert (found.bytes_in_s, found.bytes_out_s, found.window_s) == (2000.0, 500.0, 10.0)
    node = found.processes["node"]
    assert node is not None and node.rss_bytes and node.cpu
    assert node.rss_bytes > 1_000_000
    assert node.cpu > 0
    assert found.processes["worker"] is found.processes["trainer"] is None
    assert (found.disk_bytes or 0) >= 100_000
    (tmp_path / "more").write_bytes(b"x" * 1_000_000)
    again = await meter.view({"node": os.getpid()})
    assert again.disk_bytes == found.disk_bytes
    mock_clock.jump(61)
    assert ((await meter.view({})).disk_bytes or 0) >= 1_100_000


def test_a_link_is_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.write_bytes(b"x" * 1_000_000)
    (inside / "link").symlink_to(tmp_path)
    assert bytes_below(inside) < 100_000
    assert bytes_below(tmp_path / "nowhere") == 0

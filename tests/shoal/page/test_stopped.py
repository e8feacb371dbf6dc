"""A page that stands still for ten seconds, with questions out: the node's loop does not notice."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio

from tests.shoal.page.browser import page_of
from tests.support.running_node import RunningNode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

STOPPED_S = 10.0
TICK_S = 0.01
NOISE_S = 0.5
"""A busy machine's; a loop that waited for the page would stand still for all of the time."""


async def lags(seconds: float) -> list[float]:
    """How late the loop came back from short sleeps."""
    found, end = [], trio.current_time() + seconds
    while (began := trio.current_time()) < end:
        await trio.sleep(TICK_S)
        found.append(trio.current_time() - began - TICK_S)
    return found


def test_the_nodes_loop_lags_no_more_while_its_page_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    with RunningNode(folder) as node, page_of(folder, log=tmp_path / "page.txt") as page:
        where = urlsplit(page.url)
        assert where.hostname is not None and where.port is not None
        with socket.create_connection((where.hostname, where.port)) as looking:
            head = f"GET /api/state?token={page.token} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            looking.sendall(head.encode())
            assert looking.recv(12) == b"HTTP/1.1 200"
            before = node.call(lags, STOPPED_S)
            os.kill(page.process.pid, signal.SIGSTOP)
            stopped = time.monotonic()
            try:
                during = node.call(lags, STOPPED_S)
            finally:
                os.kill(page.process.pid, signal.SIGCONT)
            assert time.monotonic() - stopped >= STOPPED_S
            after = node.call(lags, STOPPED_S)
    for name, found in (("before", before), ("stopped", during), ("after", after)):
        ranked = sorted(1000 * one for one in found)
        print(f"{name}: {ranked[len(ranked) // 2]:.1f} ms, {ranked[-1]:.1f} ms at most")
    assert max(during) <= max(*before, *after) + NOISE_S
    assert len(during) > len(before) / 2

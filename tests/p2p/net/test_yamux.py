"""A frame that was begun is written: who runs out of time while it writes harms nobody else."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import trio
from libp2p.io.trio import TrioTCPStream

from p2p.net.host import Libp2pHost, RequestError, RequestFailure
from p2p.net.swarm import SwarmSettings
from p2p.net.yamux import _LAYERS
from shoal_wire.types import PeerId
from tests.support.nodes import open_test_host, until

if TYPE_CHECKING:
    from trio_typing import TaskStatus

ECHO = "/shoal/test/echo/1"


async def echo(_peer_id: PeerId, request: bytes) -> bytes:
    await trio.lowlevel.checkpoint()
    return request


async def quiet(host: Libp2pHost) -> None:
    """Wait until nothing is written on a new connection any more: identify and the first ping."""
    await until(lambda: host.connections()[0].agent and host.connections()[0].latency_ms)


def socket_of(host: Libp2pHost, peer_id: PeerId) -> TrioTCPStream:
    """Return the library's TCP stream below the one connection to a peer."""
    (layer,) = host._table.connections_of(peer_id)
    found: Any = layer
    while not isinstance(found, TrioTCPStream):
        found = next(inner for name in _LAYERS if (inner := getattr(found, name, None)))
    return found


async def hold(
    tcp: TrioTCPStream, *, task_status: TaskStatus[trio.Event] = trio.TASK_STATUS_IGNORED
) -> None:
    """Let nothing go out, as a slow link does, until the event is set."""
    release = trio.Event()
    async with tcp.write_lock:
        task_status.started(release)
        await release.wait()


async def asked(host: Libp2pHost, peer_id: PeerId, word: bytes, seconds: float) -> bytes | None:
    """Return the answer, or None if there was none in time."""
    try:
        return await host.request(peer_id, ECHO, word, max_response_bytes=64, timeout=seconds)
    except RequestError as error:
        assert error.failure is RequestFailure.TIMEOUT
        return None


@pytest.mark.parametrize("key", [None, bytes(range(32))], ids=["public", "private"])
async def test_a_request_that_runs_out_of_time_as_it_is_written_leaves_the_connection(
    key: bytes | None,
) -> None:
    swarm = SwarmSettings(key=key)
    async with open_test_host(swarm=swarm) as asker, open_test_host(swarm=swarm) as answerer:
        answerer.set_request_handler(ECHO, echo, max_request_bytes=64)
        lost: list[PeerId] = []
        asker.add_peer_callbacks(disconnected=lost.append)
        await asker.dial(answerer.listen_addrs()[0])
        await quiet(asker)
        await until(answerer.connections)
        await quiet(answerer)
        tcp = socket_of(asker, answerer.peer_id)
        async with trio.open_nursery() as nursery:
            release = await nursery.start(hold, tcp)
            # Its time is over before anything of it has gone out.
            nursery.start_soon(asked, asker, answerer.peer_id, b"late", 0.1)
            await trio.sleep(0.2)
            release.set()
        assert await asked(asker, answerer.peer_id, b"next", 5.0) == b"next"
        assert not lost


async def test_no_deadline_of_a_request_costs_the_connection() -> None:
    """Deadlines that end anywhere in a request: 150, drawn by chance."""
    rng = random.Random(5)
    async with open_test_host() as asker, open_test_host() as answerer:
        answerer.set_request_handler(ECHO, echo, max_request_bytes=64)
        lost: list[PeerId] = []
        asker.add_peer_callbacks(disconnected=lost.append)
        await asker.dial(answerer.listen_addrs()[0])
        for _ in range(15):
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(
                        asked, asker, answerer.peer_id, b"x", rng.uniform(0.0005, 0.01)
                    )
        assert await asked(asker, answerer.peer_id, b"last", 5.0) == b"last"
        assert not lost


async def test_who_takes_nothing_of_a_frame_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_test_host() as asker, open_test_host() as answerer:
        await asker.dial(answerer.listen_addrs()[0])
        await quiet(asker)
        tcp = socket_of(asker, answerer.peer_id)
        monkeypatch.setattr("p2p.net.yamux._FRAME_DEADLINE_S", 0.05)
        async with trio.open_nursery() as nursery:
            release = await nursery.start(hold, tcp)
            with pytest.raises(RequestError) as caught:
                await asker.request(
                    answerer.peer_id, ECHO, b"x", max_response_bytes=64, timeout=10.0
                )
            assert caught.value.failure is RequestFailure.RESET
            await until(lambda: not asker.is_connected(answerer.peer_id), patience_s=5.0)
            release.set()

"""The doubles behave like the real ones, as far as a component under test can tell."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from shoal_lab.simulation.parts import NoSocket
from shoal_p2p.net.connections import Direction
from shoal_p2p.net.host import DialError
from shoal_p2p.net.request import RequestError, RequestFailure
from shoal_wire.types import PeerId
from tests.support.doubles.host import FakeHost
from tests.support.doubles.identities import fresh_identity
from tests.support.doubles.network import in_virtual_time, memory_network

PEER = fresh_identity().peer_id
ADDRESS = f"/ip4/198.51.100.7/tcp/4001/p2p/{PEER}"
NAME = "/test/1"


async def test_the_host_has_the_peers_that_the_test_says(fake_host: FakeHost) -> None:
    events: list[tuple[str, PeerId]] = []
    fake_host.add_peer_callbacks(
        connected=lambda peer_id: events.append(("came", peer_id)),
        disconnected=lambda peer_id: events.append(("went", peer_id)),
    )
    with pytest.raises(DialError):
        await fake_host.dial(ADDRESS)
    fake_host.up.add(ADDRESS)
    assert await fake_host.dial(ADDRESS) == PEER
    assert [one.direction for one in fake_host.connections()] == [Direction.OUT]
    fake_host.ban(PEER, seconds=60)
    assert fake_host.is_banned(PEER)
    assert not fake_host.is_connected(PEER)
    assert events == [("came", PEER), ("went", PEER)]
    assert len(fake_host.dial_times(ADDRESS)) == 2


@pytest.mark.parametrize(
    ("connected", "served", "answer", "failure"),
    [
        (False, True, b"!", RequestFailure.NOT_CONNECTED),
        (True, False, b"!", RequestFailure.UNSUPPORTED),
        (True, True, b"!!", RequestFailure.OVERSIZE),
        (True, True, None, RequestFailure.TIMEOUT),
        (True, True, b"!", None),
    ],
)
async def test_requests_fail_as_they_do_on_a_network(
    connected: bool,
    served: bool,
    answer: bytes | None,
    failure: RequestFailure | None,
    autojump_clock: trio.testing.MockClock,
    fake_host: FakeHost,
) -> None:
    async def give(peer_id: PeerId, payload: bytes) -> bytes:
        assert (peer_id, payload) == (PEER, b"?")
        if answer is None:
            await trio.sleep_forever()
        assert answer is not None
        return answer

    if connected:
        fake_host.connect(PEER)
    if served:
        fake_host.answers[NAME] = give
    found = None
    try:
        assert await fake_host.request(PEER, NAME, b"?", max_response_bytes=1) == answer
    except RequestError as error:
        found = error.failure
    assert found is failure
    assert [one.payload for one in fake_host.requests] == [b"?"] * connected


@pytest.mark.slow
def test_an_hour_of_a_whole_node_passes_at_once(tmp_path: Path) -> None:
    from shoal_p2p.node import Node
    from tests.support.peers import quiet_settings

    async def main() -> float:
        async with memory_network(seed=1) as network, trio.open_nursery() as nursery:
            ready = trio.Event()
            node = Node(
                identity=fresh_identity(),
                settings=quiet_settings(tmp_path, listen=("/ip4/10.1.0.1/tcp/4001",)),
                on_ready=lambda _live: ready.set(),
                parts=network.parts(),
                socket=NoSocket,
            )
            nursery.start_soon(node.run)
            await ready.wait()
            began = trio.current_time()
            await trio.sleep(3600)
            nursery.cancel_scope.cancel()
            return trio.current_time() - began

    assert in_virtual_time(main) >= 3600

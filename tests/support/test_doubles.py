"""The doubles behave as the real ones do, as far as a part under test can tell."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from shoal_lab.simulation.parts import NoSocket
from shoal_p2p.net.connections import Direction
from shoal_p2p.net.host import DialError
from shoal_p2p.net.request import RequestError, RequestFailure
from shoal_tasks.types import ScoreRequest
from shoal_wire.digests import question_digest
from shoal_wire.types import FinishReason, GroupId, PeerId
from shoal_wire.verdict import ACCEPT, Verdict
from tests.support import factories as make
from tests.support.doubles.gossip import FakeGossip
from tests.support.doubles.host import FakeHost
from tests.support.doubles.identities import fresh_identity
from tests.support.doubles.network import MemoryNetwork, in_virtual_time, memory_network
from tests.support.doubles.store import open_store
from tests.support.doubles.worker import NO_TASK, RIGHT_ANSWER, InstantWorker, fake_question

PEER = fresh_identity().peer_id
ADDRESS = f"/ip4/198.51.100.7/tcp/4001/p2p/{PEER}"
NAME = "/test/1"


async def test_the_host_has_the_peers_that_the_test_says(fake_host: FakeHost) -> None:
    told: list[tuple[str, PeerId]] = []
    fake_host.add_peer_callbacks(
        connected=lambda peer_id: told.append(("came", peer_id)),
        disconnected=lambda peer_id: told.append(("went", peer_id)),
    )
    with pytest.raises(DialError):
        await fake_host.dial(ADDRESS)
    fake_host.up.add(ADDRESS)
    assert await fake_host.dial(ADDRESS) == PEER
    assert [one.direction for one in fake_host.connections()] == [Direction.OUT]
    fake_host.ban(PEER, seconds=60)
    assert fake_host.is_banned(PEER)
    assert not fake_host.is_connected(PEER)
    assert told == [("came", PEER), ("went", PEER)]
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


async def test_gossip_keeps_what_is_published_and_brings_what_is_said(
    fake_gossip: FakeGossip,
) -> None:
    heard: list[bytes] = []

    async def validate(data: bytes, author: PeerId, forwarder: PeerId) -> Verdict:
        assert author == forwarder == PEER
        heard.append(data)
        return ACCEPT

    await fake_gossip.subscribe("/topic", validate)
    assert await fake_gossip.hear("/topic", b"theirs", author=PEER) == ACCEPT
    assert await fake_gossip.publish("/topic", b"own") == 1
    fake_gossip.peers = 0
    assert await fake_gossip.publish("/topic", b"unheard") == 0
    assert heard == [b"theirs"]
    assert fake_gossip.published == [("/topic", b"own")]


async def test_the_worker_waits_breaks_and_rewards_as_told(worker_double: InstantWorker) -> None:
    task, other = make.coordinates_at(1), make.coordinates_at(2)
    worker_double.known = {other: NO_TASK}
    expected = [question_digest(fake_question(task)), NO_TASK]
    assert await worker_double.question_digests([task, other]) == expected
    right, wrong = (
        ScoreRequest(task=task, text=text, finish_reason=FinishReason.STOP)
        for text in (RIGHT_ANSWER, "?")
    )
    assert [r.reward for r in await worker_double.score([right, wrong])] == [1.0, 0.0]
    worker_double.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker_double.questions, [task])
        await trio.testing.wait_all_tasks_blocked()
        assert worker_double.waiting == 1
        worker_double.gate.set()
    worker_double.error = RuntimeError("gone")
    with pytest.raises(RuntimeError, match="gone"):
        await worker_double.items([task])


async def test_a_store_keeps_what_it_was_given(tmp_path: Path) -> None:
    for numbers in ([1], [1, 2]):
        async with open_store(tmp_path / "node.db", peer_id=PEER) as store:
            await store.consume([GroupId(bytes([number]) * 16) for number in numbers])
            assert len((await store.load()).consumed_ids) == len(numbers)


async def test_hosts_of_a_network_in_memory_meet(network: MemoryNetwork) -> None:
    ann, ben = await network.hosts(2)
    await ann.dial(ben.listen_addrs()[0])
    assert ben.is_connected(ann.peer_id)


def test_an_hour_of_a_whole_node_passes_at_once(tmp_path: Path) -> None:
    from shoal_p2p.node import Node
    from tests.support.running_node import quiet_settings

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

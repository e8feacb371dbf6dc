"""Who joins and who leaves: told once each, of the swarm alone."""

from __future__ import annotations

import trio
import trio.testing

from shoal_p2p.peers.attendance import Attendance
from shoal_wire.types import PeerId
from tests.support.doubles.host import FakeHost


async def test_it_tells_of_the_swarms_peers_alone(
    autojump_clock: trio.testing.MockClock, fake_host: FakeHost
) -> None:
    ours = {PeerId("ann"), PeerId("ben")}

    def change(name: str) -> None:
        peer = PeerId(name)
        if fake_host.is_connected(peer):
            fake_host.lose(peer)
        else:
            fake_host.connect(peer)

    said: list[tuple[str, set[str]]] = []
    attendance = Attendance(
        fake_host,
        counts=ours.__contains__,
        joined=lambda peers: said.append(("joined", set(peers))),
        left=lambda peers: said.append(("left", set(peers))),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attendance.run)
        for peer in ("ann", "ben", "cat"):
            change(peer)
        await trio.sleep(3)
        assert said == [("joined", {"ann", "ben"})]
        change("ben")
        await trio.sleep(1)
        change("ben")  # a connection that broke and was made again
        await trio.sleep(5)
        change("cat")
        ours.clear()  # its subscriptions end a moment before its connection does
        change("ann")
        await trio.sleep(3)
        assert said[1:] == [("left", {"ann"})]
        change("dan")
        await trio.sleep(3)
        ours.add(PeerId("dan"))  # it says later of which swarm it is
        await trio.sleep(30)
        assert said[2:] == [("joined", {"dan"})]
        attendance.end()
        change("dan")
        await trio.sleep(60)
        assert len(said) == 3

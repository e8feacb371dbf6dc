"""Who joins and who leaves: told once each, of the swarm alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from p2p.peers.attendance import Attendance


class Door:
    """A host as far as it is asked: who is connected."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self._told: list[Callable[[str], None]] = []

    def add_peer_callbacks(self, *, connected: Any, disconnected: Any) -> None:
        self._told += [connected, disconnected]

    def connected_peers(self) -> frozenset[str]:
        return frozenset(self.there)

    def change(self, peer: str) -> None:
        self.there ^= {peer}
        for tell in self._told:
            tell(peer)


async def test_it_tells_of_the_swarms_peers_alone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    door, ours = Door(), {"ann", "ben"}
    said: list[tuple[str, set[str]]] = []
    who: Any = door
    attendance = Attendance(
        who,
        counts=ours.__contains__,
        joined=lambda peers: said.append(("joined", set(peers))),
        left=lambda peers: said.append(("left", set(peers))),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attendance.run)
        for peer in ("ann", "ben", "cat"):
            door.change(peer)
        await trio.sleep(3)
        assert said == [("joined", {"ann", "ben"})]
        door.change("ben")
        await trio.sleep(1)
        door.change("ben")  # a connection that broke and was made again
        await trio.sleep(5)
        door.change("cat")
        ours.clear()  # its subscriptions end a moment before its connection does
        door.change("ann")
        await trio.sleep(3)
        assert said[1:] == [("left", {"ann"})]
        door.change("dan")
        await trio.sleep(3)
        ours.add("dan")  # it says later of which swarm it is
        await trio.sleep(30)
        assert said[2:] == [("joined", {"dan"})]
        attendance.end()
        door.change("dan")
        await trio.sleep(60)
        assert len(said) == 3

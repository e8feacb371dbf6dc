"""Any one way of finding peers suffices to join: whole bootstrap peers, real networking.

A peer has joined when it is in the mesh of the other's topic.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_bootstrap.peer import BootstrapPeer, MeetingPoint
from shoal_p2p.parts import Limits
from shoal_p2p.peer import BOOK
from shoal_p2p.peers import discovery
from shoal_p2p.peers.peer_book import PeerBook
from shoal_p2p.state_file import PEER_FILE, read_state, write_state
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId
from tests.p2p.peers.test_mdns import LOOPBACK, needs_multicast
from tests.support.nodes import fresh_identity, until
from tests.support.peers import address_of, open_peer, quiet_settings

PATIENCE_S = 40.0


def running(data_dir: Path, **changes: Any) -> AbstractAsyncContextManager[MeetingPoint]:
    tuning = Limits.of(quiet_settings(data_dir, **changes))
    tuning = replace(tuning, bootstrap_s=0.3, siblings_s=0.1)
    return open_peer(BootstrapPeer, data_dir, tuning=tuning, **changes)


def are_connected(one: MeetingPoint, other: MeetingPoint) -> bool:
    def meshed(of: MeetingPoint, peer_id: PeerId) -> bool:
        return any(m.peer_id == peer_id for mesh in of.member.gossip.mesh().values() for m in mesh)

    return meshed(one, other.member.peer_id) and meshed(other, one.member.peer_id)


@asynccontextmanager
async def talking_nonsense() -> AsyncIterator[str]:
    """Listen and answer every client with garbage; yield the address."""

    async def babble(stream: trio.SocketStream) -> None:
        try:
            while True:
                await stream.send_all(b"\xff garbage \x00" * 100)
                await stream.receive_some(1000)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, babble, [listener])
        port = listener.socket.getsockname()[1]
        yield f"/ip4/127.0.0.1/tcp/{port}/p2p/{fresh_identity().peer_id}"
        nursery.cancel_scope.cancel()


async def test_one_good_bootstrap_among_a_dead_one_and_garbage(tmp_path: Path) -> None:
    dead = f"/ip4/127.0.0.1/tcp/1/p2p/{fresh_identity().peer_id}"
    async with talking_nonsense() as garbage, running(tmp_path / "a" / "one") as one:
        wrong_id = f"{address_of(one).rpartition('/')[0]}/{fresh_identity().peer_id}"
        bootstrap = (dead, garbage, wrong_id, address_of(one))
        async with running(tmp_path / "b" / "two", bootstrap=bootstrap) as two:
            await until(lambda: are_connected(one, two))


async def test_saved_peers_alone(tmp_path: Path) -> None:
    async with running(tmp_path / "a" / "one") as one:
        book = PeerBook()
        transport = address_of(one).rpartition("/p2p/")[0]
        book.note_connected(
            PeerAddresses(peer_id=one.member.peer_id, addresses=(transport,)), now_ms=1
        )
        folder = tmp_path / "b" / "two"
        folder.mkdir(parents=True)
        write_state(folder / PEER_FILE, BOOK, book.to_json().encode())
        async with running(folder) as two:
            await until(lambda: are_connected(one, two))
        entry = PeerBook.from_json((read_state(folder / PEER_FILE, BOOK) or b"").decode()).ranked()[
            0
        ]
        assert (entry.peer_id, entry.num_failures) == (one.member.peer_id, 0)
        assert entry.last_seen_ms > 1


async def test_data_directories_side_by_side_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_p2p.peers.mdns.Mdns.run", _nothing)
    async with (
        running(tmp_path / "one", mdns=True) as one,
        running(tmp_path / "two", mdns=True) as two,
    ):
        await until(lambda: are_connected(one, two))


async def _nothing(_mdns: object, *, task_status: Any) -> None:
    task_status.started()


@needs_multicast
async def test_mdns_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _keep_mdns_on_loopback(monkeypatch)
    async with (
        running(tmp_path / "a" / "one", mdns=True, swarm_name="mdns test") as one,
        running(tmp_path / "b" / "two", mdns=True, swarm_name="mdns test") as two,
    ):
        await until(lambda: are_connected(one, two), patience_s=PATIENCE_S)
        found = one.member.discovery.snapshot() + two.member.discovery.snapshot()
        assert discovery.TargetKind.MDNS in {target.kind for target in found}


def _keep_mdns_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal_p2p.peers.mdns import Mdns

    original = Mdns.__init__

    def on_loopback(self: Mdns, **options: Any) -> None:
        original(self, **options | {"interfaces": LOOPBACK})

    monkeypatch.setattr(Mdns, "__init__", on_loopback)

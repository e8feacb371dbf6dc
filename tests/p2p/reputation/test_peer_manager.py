"""`PeerManager` in a real peer: bans, commands through the socket, slots, restarts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_ipc.messages import ControlAction
from shoal_lab.simulation.parts import at_once
from shoal_p2p.disk import KeptState
from shoal_p2p.net.connections import ConnectionInfo
from shoal_p2p.net.host import DialError, Libp2pHost
from shoal_p2p.net.identity import Identity
from shoal_p2p.reputation.conn_manager import least_useful
from shoal_p2p.reputation.peer_manager import REPUTATION, ControlError, PeerManager
from shoal_p2p.state_file import read_state, write_state
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason, verdict
from tests.support.doubles.host import FakeHost, connection_of
from tests.support.nodes import fresh_identity, open_test_host, until

HEAVY = verdict(Reason.BAD_SIGNATURE)


@asynccontextmanager
async def guarded(
    tmp_path: Path,
    *,
    identity: Identity | None = None,
    protected: tuple[PeerId, ...] = (),
    max_peers: int = 100,
) -> AsyncIterator[tuple[Libp2pHost, PeerManager]]:
    async with open_test_host(identity=identity) as host, trio.open_nursery() as nursery:
        guard = PeerManager(
            host=host,
            state=KeptState(tmp_path / "peer.db", REPUTATION),
            protected=protected,
            max_peers=max_peers,
            wall_ms=lambda: 1_000,
        )
        await guard.load()
        await nursery.start(guard.run)
        yield host, guard
        nursery.cancel_scope.cancel()


async def refused(host: Libp2pHost, at: Libp2pHost) -> bool:
    """Return whether `at` refuses a connection from `host`."""
    try:
        await host.dial(at.listen_addrs()[0], timeout=5.0)
        await until(lambda: at.is_connected(host.peer_id), patience_s=1.0)
    except (DialError, trio.TooSlowError):
        return True
    return False


async def test_a_ban_cuts_off_lasts_over_a_restart_and_is_lifted_by_order(tmp_path: Path) -> None:
    me = fresh_identity()
    async with open_test_host() as peer:
        async with guarded(tmp_path, identity=me) as (host, guard):
            await peer.dial(host.listen_addrs()[0])
            await until(lambda: host.is_connected(peer.peer_id))
            for _ in range(3):
                guard.on_verdict(peer.peer_id, peer.peer_id, HEAVY)
            await until(lambda: not host.is_connected(peer.peer_id))
            assert await refused(peer, host)
        async with guarded(tmp_path, identity=me) as (host, guard):
            assert guard.score(peer.peer_id) < -50
            assert await refused(peer, host)
            await guard.control(ControlAction.UNBLOCK, peer.peer_id)
            assert not await refused(peer, host)


async def test_invalid_peer_ids_in_the_file_ban_no_peer(tmp_path: Path) -> None:
    async with open_test_host() as peer:
        row = {"peer_id": "unknown", "ban_s": 600.0, "bans": 1}
        content = {"version": 1, "saved_ms": 1_000, "protected": [], "peers": [row]}
        content["blocked"] = ["no such", peer.peer_id]
        write_state(tmp_path / "peer.db", REPUTATION, json.dumps(content).encode())
        async with guarded(tmp_path) as (host, _):
            assert await refused(peer, host)


async def test_a_command_about_an_unknown_peer_is_refused(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (host, guard):
        for text in ("", "unknown", "x" * 1000, host.peer_id):
            with pytest.raises(ControlError):
                await guard.control(ControlAction.BLOCK, text)
        assert not guard.reputation.blocked


async def test_a_full_node_disconnects_the_useless_for_a_new_peer(tmp_path: Path) -> None:
    async with guarded(tmp_path, max_peers=2) as (host, guard):
        guard.conn_manager._host = Aged(host)  # type: ignore[assignment]
        async with open_test_host() as useful, open_test_host() as useless:
            for second in range(20):
                guard.reputation.board.judge(
                    verdict(Reason.VALID),
                    signer=None,
                    forwarder=useful.peer_id,
                    now=trio.current_time() + second,
                )
            async with open_test_host() as newcomer:
                for peer in (useful, useless, newcomer):
                    await peer.dial(host.listen_addrs()[0])
                    is_connected = partial(host.is_connected, peer.peer_id)
                    await until(
                        lambda is_connected=is_connected: (
                            guard.conn_manager.counters.peers_dropped or is_connected()
                        )
                    )
                await until(lambda: len(host.connected_peers()) == 2)
                assert host.connected_peers() == {useful.peer_id, newcomer.peer_id}


class Aged:
    """A host whose connections, but for the newest, look old."""

    def __init__(self, host: Libp2pHost) -> None:
        self._host = host

    def connections(self) -> list[Any]:
        """All connections, all but the newest an hour old."""
        found = self._host.connections()
        return [replace(c, opened_s=3600.0 + c.opened_s) for c in found[:-1]] + [found[-1]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


# Newcomers and established peers


def seen(name: int, *, opened_s: float, network: int | None = None) -> ConnectionInfo:
    host = "127.0.0.1" if network is None else f"45.0.{network}.1"
    return connection_of(f"p{name}", f"/ip4/{host}/tcp/{name + 1}", opened_s=opened_s)


class ConnectionModel:
    """Connections and their ranks over time; adding one may displace another."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.opened: dict[int, tuple[float, int | None]] = {}
        self.rank: dict[PeerId, float] = {}
        self.now = 0.0

    def add(self, name: int, network: int | None = None, rank: float = 0.0) -> int | None:
        """Return the displaced connection, if any."""
        self.opened[name] = (self.now, network)
        self.rank[PeerId(f"p{name}")] = rank
        if len(self.opened) <= self.places:
            return None
        connections = [
            seen(n, opened_s=self.now - at, network=of) for n, (at, of) in self.opened.items()
        ]
        gone = least_useful(connections, self.rank, max_peers=self.places)
        number = int(gone.peer_id[1:])
        del self.opened[number]
        return number


@pytest.mark.parametrize("network", [None, 7])
def test_idle_newcomers_take_no_place_from_modest_merit(network: int | None) -> None:
    model = ConnectionModel(24)
    for name in range(24):
        model.add(name, rank=0.05 if name < 20 else 0.0)
    model.now = 3600.0
    for name in range(100, 700):
        model.now += 0.1
        model.add(name, network)
        assert set(range(20)) <= model.opened.keys()


def test_the_crowd_makes_room_for_a_newcomer_of_another_network() -> None:
    model = ConnectionModel(24)
    for name in range(18):
        model.add(name, rank=0.05)
    model.now = 3600.0
    for name in range(100, 200):
        model.now += 0.1
        model.add(name, network=7)
    model.add(50, network=8)
    assert 50 in model.opened
    for name in range(200, 600):
        model.now += 0.1
        model.add(name, network=7)
        assert 50 in model.opened


def test_a_new_peer_has_ten_seconds_before_any_later_one() -> None:
    model = ConnectionModel(24)
    for name in range(18):
        model.add(name, rank=0.05)
    model.now = 3600.0
    model.add(50)
    for name in range(100, 199):
        model.now += 0.1
        model.add(name)
        assert 50 in model.opened
    model.rank[PeerId("p50")] = 0.05
    for name in range(200, 600):
        model.now += 0.1
        model.add(name)
        assert 50 in model.opened, "it has proven itself"


EVENTS = st.lists(
    st.tuples(
        st.floats(0.0, 30.0),
        st.sampled_from([None, 1, 2, 3]),
        st.sampled_from([0.0, 0.0, 0.0, 0.05, 2.0, -3.0]),
    ),
    max_size=120,
)


@settings(max_examples=200)
@given(EVENTS)
def test_no_course_of_arrivals_puts_an_idle_newcomer_in_the_place_of_merit(
    events: list[tuple[float, int | None, float]],
) -> None:
    model = ConnectionModel(12)
    for number, (pause, network, rank) in enumerate(events):
        model.now += pause
        before = {n: model.now - at for n, (at, _) in model.opened.items()}
        gone = model.add(number, network, rank)
        assert len(model.opened) <= model.places
        if gone is None or model.rank[PeerId(f"p{gone}")] <= 0:
            continue
        left = [model.rank[PeerId(f"p{n}")] for n in model.opened]
        assert min(left) >= model.rank[PeerId(f"p{gone}")], f"a better peer was displaced: {before}"


async def test_a_new_ban_is_on_disk_within_twenty_seconds_and_points_within_a_minute(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    writes: list[float] = []

    async def recording(call: Callable[..., Any], *args: Any, **_: Any) -> Any:
        writes.append(trio.current_time())
        return await at_once(call, *args)

    guard = PeerManager(
        host=FakeHost(),
        state=KeptState(tmp_path / "peer.db", REPUTATION, in_thread=cast("Any", recording)),
        protected=(),
        max_peers=10,
        wall_ms=lambda: int(1000 * trio.current_time()),
    )
    good, bad = (fresh_identity().peer_id for _ in range(2))
    async with trio.open_nursery() as nursery:
        await nursery.start(guard.run)
        for _ in range(610):
            await trio.sleep(1)
            guard.on_verdict(good, good, verdict(Reason.VALID))
        assert len(writes) == 10, "once a minute, whatever is judged"
        assert good in (read_state(tmp_path / "peer.db", REPUTATION) or b"").decode()
        await trio.sleep(1)
        for _ in range(3):
            guard.on_verdict(bad, bad, HEAVY)
        await trio.sleep(20)
        assert bad in (read_state(tmp_path / "peer.db", REPUTATION) or b"").decode()
        nursery.cancel_scope.cancel()

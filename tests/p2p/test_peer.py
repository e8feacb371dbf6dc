"""What a peer passes to its parts: publishers, needed peers, addresses that it may dial.

Nothing runs here but hosts on a simulated network. Each of these is a wire, and red when it is cut.
"""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from shoal_lab.simulation.network import SimulatedNetwork
from shoal_lab.simulation.parts import simulated_parts
from shoal_p2p.intake.intake import Receivers
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.node import say_who_is_there
from shoal_p2p.parts import Dependencies
from shoal_p2p.peer import PeerNode
from shoal_p2p.peers.address_policy import DIALS_PER_ADDRESS
from shoal_p2p.swarm_node import Demand, SwarmNode
from shoal_settings.schema import Settings
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId
from tests.support import factories as make
from tests.support.doubles.worker import InstantWorker

SWARM = make.swarm("seams", shard_count=2)
PLACE = "/ip4/198.51.100.7/tcp/4001"


async def nothing(*_: Any) -> None:
    await trio.lowlevel.checkpoint()


class Town:
    """Some peers on one simulated network, their hosts listening."""

    def __init__(self, folder: Path, network: SimulatedNetwork, nursery: trio.Nursery) -> None:
        self.folder, self.network, self.nursery = folder, network, nursery

    async def peer(self, number: int, *bootstrap: PeerNode, **changes: Any) -> PeerNode:
        home = self.folder / str(number)
        home.mkdir()
        settings = Settings(
            data_dir=home,
            listen=(f"/ip4/10.0.{number}.1/tcp/4001",),
            bootstrap=tuple(peer.host.listen_addrs()[0] for peer in bootstrap),
            mdns=False,
            **changes,
        )
        peer = PeerNode(
            identity=identity_from_seed(number.to_bytes(32, "big")),
            settings=settings,
            parts=self._parts(number),
        )
        await self.nursery.start(peer.host.run)
        return peer

    def _parts(self, number: int) -> Dependencies:
        return simulated_parts(
            self.network,
            worker=lambda _families, _patience_s: InstantWorker(),
            wall_ms=lambda: 1,
            rng=random.Random(number),
        )


@pytest.fixture
async def there(tmp_path: Path, nursery: trio.Nursery) -> Town:
    network = SimulatedNetwork(random.Random(1))
    await nursery.start(network.run)
    return Town(tmp_path, network, nursery)


async def meet(one: PeerNode, *others: PeerNode) -> None:
    for other in others:
        await one.host.dial(other.host.listen_addrs()[0])


def member_of(peer: PeerNode) -> SwarmNode:
    return SwarmNode(
        peer,
        SWARM,
        Receivers(keep=nothing, on_equivocation=nothing),
        draws=Demand(per_s=lambda: 1.0),
    )


async def test_a_node_whose_rounds_are_done_does_not_say_that_it_trains(
    there: Town, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="shoal_p2p.node")
    is_training = True
    me, other = await there.peer(1), await there.peer(2)
    there.nursery.start_soon(say_who_is_there, me, lambda: is_training)
    await trio.sleep(10.0)
    await meet(me, other)
    await trio.sleep(10.0)
    is_training = False
    await other.host.disconnect(me.peer_id)
    await trio.sleep(10.0)
    assert [record.getMessage() for record in caplog.records] == [
        "no peers yet: training alone, and looking for peers",
        "connected to 1 peer",
        "no peers any more: looking for peers",
    ]


async def test_who_speaks_is_known_by_its_connection(there: Town) -> None:
    me, other = await there.peer(1), await there.peer(2)
    await meet(me, other)
    speaker = me.address_policy.speaker(other.peer_id)
    assert speaker.source == "10.0.2.0/24"
    assert speaker.networks == frozenset({"10.0.0.0/8"})
    assert not speaker.is_allowed("/ip4/192.168.1.1/tcp/1")


async def test_a_relay_in_use_is_needed(
    there: Town, autojump_clock: trio.testing.MockClock
) -> None:
    boot = await there.peer(1)
    for relays, stays in (((boot.peer_id,), True), ((), False)):
        me = await there.peer(2 + stays, boot, target_peers=1)
        me.relays = SimpleNamespace(relays=relays)
        other = await there.peer(4 + stays)
        await there.nursery.start(me.discovery.run)
        await trio.sleep(1.0)
        await meet(me, other)
        await trio.sleep(150.0)
        assert me.host.is_connected(other.peer_id)
        assert me.host.is_connected(boot.peer_id) is stays


async def test_all_dials_of_third_party_addresses_share_one_budget(there: Town) -> None:
    me, liar = await there.peer(1), await there.peer(2)
    await meet(me, liar)
    may_dial = member_of(me).shards._search.may_dial
    burst = int(DIALS_PER_ADDRESS.burst)
    assert [may_dial(PLACE, liar.peer_id) for _ in range(burst + 1)] == [*[True] * burst, False]
    assert not me.address_policy.may_dial(PLACE, None), "no more dials to that address"


async def test_what_one_network_says_is_one_speakers_word(there: Town) -> None:
    """Names cost nothing: a second one at the same connection's network has no dials of its own."""
    me, liar = await there.peer(1), await there.peer(2)
    await meet(me, liar)
    shards = member_of(me).shards
    reports = [f"/ip4/198.51.{n}.7/tcp/4001" for n in range(100)]
    num_dialled = sum(shards._search.may_dial(address, liar.peer_id) for address in reports)
    assert num_dialled == 32
    assert not me.address_policy.may_dial("/ip4/203.0.113.9/tcp/1", "10.0.2.0/24")


async def test_announced_shards_are_checked(there: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    async def reports(_host: Any, _peer_id: PeerId, _shards: Any) -> list[PeerAddresses]:
        await trio.lowlevel.checkpoint()
        reported = make.fresh_identity().peer_id
        return [PeerAddresses(peer_id=reported, addresses=(PLACE, "/ip4/192.168.1.1/tcp/1"))]

    monkeypatch.setattr("shoal_p2p.swarm_node.services.fetch_peers", reports)
    me, liar = await there.peer(1), await there.peer(2)
    await meet(me, liar)
    (found,) = await member_of(me)._ask_for_shards(liar.peer_id, (0,))
    assert found.addresses == (PLACE,)


async def test_a_bootstrap_that_listens_to_nothing_is_of_the_swarm(
    there: Town, autojump_clock: trio.testing.MockClock
) -> None:
    boot, other = await there.peer(1), await there.peer(2)
    me = await there.peer(3, boot)
    await meet(me, boot, other)
    await me.gossip.subscribe(SWARM.topic(0), nothing)  # type: ignore[arg-type]
    await trio.sleep(1.0)
    assert me.is_of_swarm(boot.peer_id), "as where there are several shards"
    assert not me.is_of_swarm(other.peer_id)
    foreign = make.swarm("another").topic(0)
    await boot.gossip.subscribe(foreign, nothing)  # type: ignore[arg-type]
    await trio.sleep(1.0)
    assert not me.is_of_swarm(boot.peer_id)
    await other.gossip.subscribe(SWARM.topic(1), nothing)  # type: ignore[arg-type]
    await trio.sleep(1.0)
    assert me.is_of_swarm(other.peer_id)

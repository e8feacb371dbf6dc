"""A full bootstrap locks nobody out: whole nodes, but for trainers, over real sockets."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from shoal_bootstrap.peer import BootstrapPeer, MeetingPoint
from shoal_ipc.answers.doctor import Finding
from shoal_p2p.live_node import LiveNode
from shoal_p2p.net.refusals import DialError
from shoal_p2p.node import Node, NodeEnd
from shoal_p2p.peers.discovery import DiscoverySettings
from tests.p2p.peers.test_discovery import discovering, fake_host, full, peer
from tests.support.nodes import fresh_identity, until
from tests.support.peers import INSTANT, address_of, open_peer
from tests.support.running_node import quiet_settings

JOINED_S = 60.0


async def seconds_to_company(folder: Path, *, nodes: int, slots: int) -> list[float]:
    """Start `nodes` at once, and return how long each was without one of the others, in order.

    Infinite for those who still are after a minute.
    """
    alive: dict[int, LiveNode] = {}
    met: dict[int, float] = {}
    async with open_peer(
        BootstrapPeer, folder / "b", parts=INSTANT, max_connections=slots, swarm_name="full"
    ) as meeting:
        door = address_of(meeting)

        async def live(number: int) -> None:
            home = folder / f"n{number}"
            home.mkdir()
            identity, end = fresh_identity(), NodeEnd.MANIFEST_CHANGED
            while end is NodeEnd.MANIFEST_CHANGED:
                end = await Node(
                    identity=identity,
                    settings=quiet_settings(home, bootstrap=(door,), swarm_name="alone"),
                    on_ready=lambda node: alive.update({number: node}),
                    parts=INSTANT,
                ).run()

        async with trio.open_nursery() as nursery:
            started = trio.current_time()
            for number in range(nodes):
                nursery.start_soon(live, number)
            with trio.move_on_after(JOINED_S):
                while len(met) < nodes:
                    await trio.sleep(0.1)
                    for number, node in alive.items():
                        if number not in met and has_company(node, meeting):
                            met[number] = trio.current_time() - started
            nursery.cancel_scope.cancel()
    return sorted(met.get(number, math.inf) for number in range(nodes))


def has_company(node: LiveNode, meeting: MeetingPoint) -> bool:
    """Return whether a node is in the right swarm with somebody beside the bootstrap."""
    others = node.peer.host.connected_peers() - {meeting.member.peer_id}
    return node.manifest == meeting.member.manifest and bool(others)


async def test_eight_nodes_meet_through_three_slots(tmp_path: Path) -> None:
    waits = await seconds_to_company(tmp_path, nodes=8, slots=3)
    assert waits[-1] < JOINED_S, waits


@pytest.mark.parametrize(("has_company", "is_there"), [(True, True), (True, False), (False, True)])
async def test_a_full_bootstrap_is_left_alone_by_who_has_company(
    has_company: bool,
    is_there: bool,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    host, boot = fake_host(), peer(1)
    host.dial_error = DialError("it may be full", is_cut_off=is_there)
    async with discovering(host, boot, settings=DiscoverySettings(target_peers=4)):
        if has_company:
            host.connect(peer(2).peer_id)
        await trio.sleep(1500)
        times = host.dial_times(full(boot))[8:]
        gaps = [b - a for a, b in pairwise(times)]
        if has_company and is_there:
            assert sum(gaps) / len(gaps) > 20
            assert max(gaps) > 45
            assert "no bootstrap has answered" not in caplog.text
        else:
            assert max(gaps) <= 8.1, "a bootstrap that returns, or has room, is found soon"
            assert "no bootstrap has answered for 1 min (it may be full)" in caplog.text


@pytest.mark.slow
async def test_forty_nodes_meet_through_eight_slots(tmp_path: Path) -> None:
    waits = await seconds_to_company(tmp_path, nodes=40, slots=8)
    assert waits[-1] < JOINED_S, waits


async def test_who_is_let_go_is_told_and_waits_and_both_doctors_say_why(tmp_path: Path) -> None:
    async with open_peer(
        BootstrapPeer, tmp_path / "b", parts=INSTANT, max_connections=2, target_peers=1
    ) as meeting:
        room = meeting.member.guard.room
        async with (
            open_peer(Node, tmp_path / "1", parts=INSTANT, bootstrap=(address_of(meeting),)) as one,
            open_peer(Node, tmp_path / "2", parts=INSTANT, bootstrap=(address_of(meeting),)) as two,
        ):
            await until(lambda: room.num_let_go, patience_s=30.0)
            nodes = [one, two]

            def waiting() -> list[LiveNode]:
                return [n for n in nodes if n.peer.discovery.full_s(meeting.member.peer_id)]

            await until(waiting, patience_s=30.0)
            (gone, *_) = waiting()
            (seen,) = await findings(gone, "bootstrap")
            assert "is full: it let this node go" in seen.says
            (seen,) = await findings(meeting, "full")
            assert "peers were let go to make room" in seen.says
            assert "--max-connections" in seen.do


async def findings(peer: LiveNode | MeetingPoint, check: str) -> list[Finding]:
    views = peer.views.by_name() if isinstance(peer, LiveNode) else peer.views()
    report = await views["doctor"]({})
    return [finding for finding in report.findings if finding.check == check]

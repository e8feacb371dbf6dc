"""A full bootstrap excludes no node: real nodes without trainers, over real sockets."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import trio

from shoal_bootstrap.peer import BootstrapPeer, MeetingPoint
from shoal_ipc.answers.doctor import Finding
from shoal_p2p.live_node import NodeComponents
from shoal_p2p.net.refusals import DialError
from shoal_p2p.node import Node
from shoal_p2p.peers.discovery import DiscoverySettings
from tests.p2p.peers.bench import Net, discovering, full, peer
from tests.support.nodes import until
from tests.support.peers import INSTANT, address_of, open_peer


def has_company(node: NodeComponents, meeting: MeetingPoint) -> bool:
    """Return whether a node is in the right swarm with a peer other than the bootstrap."""
    others = node.peer.host.connected_peers() - {meeting.member.peer_id}
    return node.manifest == meeting.member.manifest and bool(others)


@pytest.mark.virtual_time
@pytest.mark.parametrize(("has_company", "is_there"), [(True, True), (True, False), (False, True)])
async def test_a_full_bootstrap_is_left_alone_by_who_has_company(
    has_company: bool, is_there: bool, caplog: pytest.LogCaptureFixture
) -> None:
    host, boot = Net(dial_error=DialError("it may be full", is_closed_early=is_there)), peer(1)
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
            assert max(gaps) <= 17.1, "a bootstrap that returns, or has room, is found soon"
            assert "no bootstrap has answered for 1 min (it may be full)" in caplog.text


async def test_a_disconnected_peer_gets_the_reason_and_waits_and_both_doctors_show_it(
    tmp_path: Path,
) -> None:
    async with open_peer(
        BootstrapPeer, tmp_path / "b", parts=INSTANT, max_connections=2, target_peers=1
    ) as meeting:
        room = meeting.member.guard.conn_manager
        async with (
            open_peer(Node, tmp_path / "1", parts=INSTANT, bootstrap=(address_of(meeting),)) as one,
            open_peer(Node, tmp_path / "2", parts=INSTANT, bootstrap=(address_of(meeting),)) as two,
        ):
            await until(lambda: room.counters.peers_dropped, patience_s=30.0)
            nodes = [one, two]

            def waiting() -> list[NodeComponents]:
                return [n for n in nodes if n.peer.discovery.full_s(meeting.member.peer_id)]

            await until(waiting, patience_s=30.0)
            (gone, *_) = waiting()
            (seen,) = await findings(gone, "bootstrap")
            assert "is full: it disconnected this node" in seen.message
            (seen,) = await findings(meeting, "full")
            assert "were disconnected to free a slot" in seen.message
            assert "--max-connections" in seen.remedy


async def findings(peer: NodeComponents | MeetingPoint, check: str) -> list[Finding]:
    views = peer.views.by_name() if isinstance(peer, NodeComponents) else peer.views()
    report = await views["doctor"]({})
    return [finding for finding in report.findings if finding.check == check]

"""The bootstrap peer with whole nodes, in one loop: they meet, share, and outlive it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal.__main__ import main
from shoal.view.node import words_of
from shoal_bootstrap.peer import BootstrapPeer
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused
from shoal_p2p.node import Node
from shoal_tasks.run_memory import load_manifest
from tests.support import factories as make
from tests.support.nodes import until
from tests.support.peers import address_of, open_peer, stop

PATIENCE_S = 40.0


async def share(node: Any, number: int) -> None:
    (question,) = await node.member.worker.questions([make.coordinates_at(number)])
    group = make.group(of=make.task(number, question=question))
    await node.outbox.accept(make.publish([group], key=b"%d" % number))


async def test_nodes_meet_through_it_share_and_outlive_it(tmp_path: Path) -> None:
    one_dir, two_dir, meeting = tmp_path / "one", tmp_path / "two", tmp_path / "meeting"
    async with open_peer(BootstrapPeer, meeting, swarm_name="named here") as peer:
        address, first = address_of(peer), peer.member
        joined: dict[str, Any] = {"bootstrap": (address,)}
        async with (
            open_peer(Node, one_dir, swarm_name="mine", max_age_seconds=7, **joined) as one,
            open_peer(Node, two_dir, **joined) as two,
        ):
            # The address alone was enough: the rules come from the peer behind it.
            for node, folder in ((one, one_dir), (two, two_dir)):
                assert node.member.manifest == first.manifest
                assert load_manifest(folder) == first.manifest
            other = two.member.peer_id
            await until(lambda: one.member.host.is_connected(other), patience_s=PATIENCE_S)
            await share(one, 1)
            await until(lambda: two.counters.groups_received == 1, patience_s=PATIENCE_S)
            await until(lambda: peer.groups_relayed == 1, patience_s=PATIENCE_S)
            stop(peer)
            await until(lambda: not one.member.host.is_connected(first.peer_id))
            await share(two, 2)
            await until(lambda: one.counters.groups_received == 1, patience_s=PATIENCE_S)
            async with open_peer(BootstrapPeer, meeting, swarm_name="forgotten") as again:
                # The same peer at the same address, so no other node needs a change.
                assert address_of(again) == address
                for node in (one, two):
                    await until(
                        lambda node=node: node.member.host.is_connected(first.peer_id),
                        patience_s=PATIENCE_S,
                    )


async def test_it_answers_debug_and_takes_no_rollouts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "meeting"
    async with open_peer(BootstrapPeer, data_dir) as peer:
        for view in ("status", "peers", "scores"):
            command = [*words_of(view), "--data-dir", str(data_dir)]
            assert await trio.to_thread.run_sync(main, [*command, "--json"]) == 0
            shown = json.loads(capsys.readouterr().out)
            assert shown["schema_version"] == 1
            if view == "status":
                assert shown["role"] == "bootstrap"
                assert shown["groups_relayed"] == 0
                assert shown["peer_id"] == peer.member.peer_id
            assert await trio.to_thread.run_sync(main, command) == 0
            capsys.readouterr()
        command = ["doctor", "--data-dir", str(data_dir)]
        assert await trio.to_thread.run_sync(main, command) == 0
        assert "shoal invite" in capsys.readouterr().out
        command = ["debug", "buffer", "--data-dir", str(data_dir)]
        assert await trio.to_thread.run_sync(main, command) == 1
        assert "no view 'buffer'" in capsys.readouterr().err
        client = NodeClient(data_dir / SOCKET_NAME, timeout_seconds=20.0)
        with pytest.raises(NodeRefused, match="Publish"):
            await trio.to_thread.run_sync(client.call, make.publish(), m.PublishReply)
        client.close()

"""Whole nodes of private swarms: who joins, who does not, and that nobody exits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from bootstrap.peer import BootstrapPeer
from p2p import peer as peer_core
from p2p.net.identity import load_or_create_identity
from p2p.net.swarm_key import format_swarm_key
from p2p.node import Node
from p2p.peers import manifest_source
from shoal.__main__ import main
from shoal_wire.types import PeerId
from tests.support import factories as make
from tests.support.nodes import until
from tests.support.running_node import quiet_settings

PATIENCE_S = 40.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_core, "TaskWorker", make.SharedWorker)
    monkeypatch.setattr(manifest_source, "BOOTSTRAP_SECONDS", PATIENCE_S)


def id_in(data_dir: Path) -> PeerId:
    data_dir.mkdir(exist_ok=True)
    return load_or_create_identity(data_dir / "identity.key").peer_id


@asynccontextmanager
async def running(
    kind: Any, data_dir: Path, *, admitted: bool = True, **changes: Any
) -> AsyncIterator[Any]:
    """Run a peer; one that is not `admitted` does not wait for its bootstrap for long."""
    manifest_source.BOOTSTRAP_SECONDS = PATIENCE_S if admitted else 0.3
    await trio.Path(data_dir).mkdir(exist_ok=True)
    ready = trio.Event()
    peer = kind(
        identity=load_or_create_identity(data_dir / "identity.key"),
        settings=quiet_settings(data_dir, **changes),
        on_ready=lambda _peer: ready.set(),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run)
        with trio.fail_after(PATIENCE_S):
            await ready.wait()
        yield peer
        peer.stop()


def address_of(peer: Any) -> str:
    return str(peer.core.host.listen_addrs()[0])


async def test_only_listed_peers_join(tmp_path: Path) -> None:
    friend_id = id_in(tmp_path / "friend")
    async with running(BootstrapPeer, tmp_path / "boot", allow_peers=(friend_id,)) as boot:
        assert boot.core.manifest.rules.allowed_peers == tuple(
            sorted([friend_id, boot.core.peer_id])
        )
        at = (address_of(boot),)
        async with (
            running(Node, tmp_path / "friend", bootstrap=at) as friend,
            running(Node, tmp_path / "stranger", admitted=False, bootstrap=at) as stranger,
        ):
            assert friend.core.manifest == boot.core.manifest
            assert friend.core.host.is_connected(boot.core.peer_id)
            assert stranger.core.discovery.solo, "it goes on alone, and does not exit"
            (target,) = stranger.core.discovery.snapshot()
            assert "list of peers" in target.last_error
            assert boot.core.host.num_refused
            # The list holds at every member, not only where it was made.
            stranger.core.discovery.add_peer(_addr(friend), "exchange")
            await until(lambda: friend.core.host.num_refused)
            assert not friend.core.host.is_connected(stranger.core.peer_id)


async def test_the_list_of_an_earlier_swarm_does_not_keep_a_node_from_its_next(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "friend"
    async with contextlib.AsyncExitStack() as stack:
        start = stack.enter_async_context
        boot = await start(running(BootstrapPeer, tmp_path / "boot", allow_peers=(id_in(folder),)))
        friend = await start(running(BootstrapPeer, folder, bootstrap=(address_of(boot),)))
        assert friend.core.manifest.rules.allowed_peers
    async with (
        running(BootstrapPeer, tmp_path / "next") as other,
        running(BootstrapPeer, folder, bootstrap=(address_of(other),)) as friend,
    ):
        await until(lambda: friend.core.manifest == other.core.manifest)
        assert friend.core.host.is_connected(other.core.peer_id)


def _addr(peer: Any) -> Any:
    transport = address_of(peer).rpartition("/p2p/")[0]
    return peer_core.PeerAddresses(peer_id=peer.core.peer_id, addresses=(transport,))


async def test_only_peers_with_the_key_join(tmp_path: Path) -> None:
    key = tmp_path / "swarm.key"
    await trio.Path(key).write_text(format_swarm_key(b"k" * 32))
    async with running(BootstrapPeer, tmp_path / "boot", swarm_key=str(key)) as boot:
        at = (address_of(boot),)
        async with (
            running(Node, tmp_path / "friend", bootstrap=at, swarm_key=str(key)) as friend,
            running(Node, tmp_path / "stranger", admitted=False, bootstrap=at) as stranger,
        ):
            await until(lambda: any(friend.core.gossip.mesh().values()))
            assert stranger.core.discovery.solo
            assert boot.core.host.num_refused


@pytest.mark.parametrize("command", ["node", "bootstrap"])
def test_a_key_that_cannot_be_used_is_one_line(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data-dir", str(tmp_path / "d"), "--swarm-key", str(tmp_path / "absent")]
    assert main([command, *arguments]) == 2
    error = capfd.readouterr().err
    assert "cannot read the swarm key" in error
    assert error.count("\n") == 1


def test_a_list_with_something_else_in_it_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "--allow-peers", "bob"]) == 2
    error = capfd.readouterr().err
    assert "'bob' is not a peer id" in error
    assert error.count("\n") == 1

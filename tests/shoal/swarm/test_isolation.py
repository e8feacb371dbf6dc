"""A local swarm next to other nodes of the machine: no other node joins it or reaches it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from shoal.swarm.isolation import bootstrap_settings, key_of_swarm, node_settings
from shoal_bootstrap.peer import BootstrapPeer
from shoal_p2p.net.access import AccessDenied
from shoal_p2p.net.swarm_key import load_swarm_key
from shoal_p2p.node import Node
from shoal_p2p.peers.mdns import Mdns
from shoal_settings.loader import to_flags
from shoal_settings.schema import Settings
from tests.p2p.peers.test_mdns import LOOPBACK, needs_multicast
from tests.support.nodes import until
from tests.support.peers import address_of, open_peer, run_peer


def swarm_of(folder: Path, *, mdns: bool = False) -> Settings:
    folder.mkdir(exist_ok=True)
    return Settings(data_dir=folder, mdns=mdns, nodes=2, role="observe", log_level="error")


def test_every_process_has_the_key_and_no_discovery(tmp_path: Path) -> None:
    own = swarm_of(tmp_path / "s")
    key = key_of_swarm(own)
    assert key_of_swarm(own) == key, "the same after a restart"
    load_swarm_key(Path(key))
    assert key != key_of_swarm(swarm_of(tmp_path / "other"))
    boot, node = bootstrap_settings(own, key), node_settings(own, key, 1, "/ip4/…/p2p/ID")
    assert {"--no-mdns", f"--swarm-key={key}"} <= set(to_flags(boot, "bootstrap"))
    assert {"--no-mdns", f"--swarm-key={key}"} <= set(to_flags(node, "node"))


def test_on_request_it_is_as_open_as_any_bootstrap(tmp_path: Path) -> None:
    own = swarm_of(tmp_path / "s", mdns=True)
    key = key_of_swarm(own)
    flags = to_flags(bootstrap_settings(own, key), "bootstrap")
    assert {"--mdns", "--swarm-key=none"} <= set(flags)
    assert not (tmp_path / "s/swarm.key").exists()


def other_side(live: Any) -> set[Any]:
    return set(live.member.host.connected_peers())


@pytest.mark.slow
@needs_multicast
@pytest.mark.parametrize("mdns", [False, True], ids=["isolated", "open"])
async def test_a_swarm_next_to_another_node(
    mdns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Mdns.__init__
    monkeypatch.setattr(
        Mdns,
        "__init__",
        lambda self, **options: original(self, **options | {"interfaces": LOOPBACK}),
    )
    own = swarm_of(tmp_path / "s", mdns=mdns)
    key = key_of_swarm(own)
    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        boot = await start(run_peer(BootstrapPeer, bootstrap_settings(own, key)))
        (own.data_dir / "node-1").mkdir()
        node = await start(run_peer(Node, node_settings(own, key, 1, address_of(boot))))
        # One stranger in the folder of the swarm, one anywhere on the machine.
        neighbour = await start(open_peer(Node, own.data_dir / "stranger", mdns=True))
        away = await start(open_peer(Node, tmp_path / "away" / "stranger", mdns=True))
        strangers = {neighbour.member.peer_id, away.member.peer_id}
        await until(lambda: away.member.peer_id in other_side(neighbour), patience_s=40)
        await until(lambda: node.member.peer_id in other_side(boot))
        if mdns:
            await until(lambda: strangers & other_side(boot), patience_s=40)
            return
        await until(lambda: boot.member.host.refused_connections().get(AccessDenied.KEY_UNEXPECTED))
        assert other_side(boot) == {node.member.peer_id}
        assert other_side(node) == {boot.member.peer_id}

"""Whether a node can be dialled, by what its peers say of it: each of them may lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
import trio

from p2p.net.connections import ConnectionInfo, Direction
from p2p.peers import relay_client
from p2p.peers.outside import Outside
from p2p.peers.relay_client import RelayClient
from shoal_wire.types import PeerId
from tests.support.nodes import fresh_identity


@dataclass
class AskedHost:
    """Has four peers of as many networks; who says what is `says`."""

    says: dict[PeerId, tuple[str, bool]]
    """By peer: where it sees this node, and whether it gets in."""
    libp2p_host: object = None

    def add_peer_callbacks(self, **_callbacks: object) -> None:
        pass

    def listen_addrs(self) -> tuple[str, ...]:
        return (f"/ip4/192.168.1.2/tcp/4001/p2p/{fresh_identity().peer_id}",)

    def connections(self) -> tuple[ConnectionInfo, ...]:
        return tuple(
            ConnectionInfo(
                peer_id=peer_id,
                address=f"/ip4/11.88.{network}.1/tcp/1",
                direction=Direction.IN,
                opened_s=1.0,
                agent="",
                latency_ms=None,
            )
            for network, peer_id in enumerate(self.says)
        )


SEEN_OUTSIDE, SEEN_AT_HOME = "/ip4/9.9.9.9/tcp/50000", "/ip4/192.168.1.2/tcp/4001"


@pytest.mark.parametrize(
    ("says", "reachable"),
    [
        ([(SEEN_OUTSIDE, True)], True),
        ([(SEEN_OUTSIDE, True), *[(SEEN_OUTSIDE, False)] * 3], False),
        ([*[(SEEN_OUTSIDE, True)] * 2, *[(SEEN_OUTSIDE, False)] * 2], False),
        ([*[(SEEN_OUTSIDE, True)] * 3, (SEEN_OUTSIDE, False)], True),
        ([*[(SEEN_AT_HOME, True)] * 3, (SEEN_OUTSIDE, False)], False),
        ([*[(SEEN_AT_HOME, True)] * 2], True),
    ],
)
async def test_a_hidden_node_is_not_talked_out_of_its_relays(
    says: list[tuple[str, bool]], reachable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = AskedHost({fresh_identity().peer_id: said for said in says})

    async def ask(_host: object, peer_id: PeerId, *, ports: tuple[int, ...]) -> Outside:
        await trio.lowlevel.checkpoint()
        observed, is_in = host.says[peer_id]
        return Outside(
            peer_id=peer_id,
            observed=observed,
            open_ports=ports if is_in else (),
            dialled=True,
            clock_ahead_ms=0,
        )

    monkeypatch.setattr(relay_client, "ask_outside", ask)
    client = RelayClient(host=cast("Any", host))
    await client._find_out()
    assert client.reachable is reachable

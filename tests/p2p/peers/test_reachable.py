"""Whether a node can be dialled, by what its peers say of it: each of them may lie."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast
from unittest import mock

import pytest
import trio
import trio.testing

from p2p.net.connections import ConnectionInfo, Direction
from p2p.peers import relay_client
from p2p.peers.outside import Outside
from p2p.peers.relay_client import RelayClient
from shoal_wire.types import PeerId
from tests.support.nodes import fresh_identity


@dataclass
class AskedHost:
    """Has peers at addresses of their own, which say where they see it and whether they get in."""

    says: dict[PeerId, tuple[str, str, bool]]
    """By peer: where it is, where it says that it sees this node, and whether it gets in."""
    libp2p_host: object = field(default_factory=mock.Mock)

    def add_peer_callbacks(self, **_callbacks: object) -> None:
        pass

    def listen_addrs(self) -> tuple[str, ...]:
        return (f"/ip4/192.168.1.2/tcp/4001/p2p/{fresh_identity().peer_id}",)

    def connections(self) -> tuple[ConnectionInfo, ...]:
        return tuple(
            ConnectionInfo(
                peer_id=peer_id,
                address=address,
                direction=Direction.IN,
                opened_s=1.0,
                agent="",
                latency_ms=None,
            )
            for peer_id, (address, _, _) in self.says.items()
        )


SEEN_OUTSIDE, SEEN_AT_HOME = "/ip4/9.9.9.9/tcp/50000", "/ip4/192.168.1.2/tcp/4001"


def outside(number: int, *, is_in: bool) -> tuple[str, str, bool]:
    return f"/ip4/11.88.{number}.1/tcp/1", SEEN_OUTSIDE, is_in


def at_home(number: int, *, is_in: bool, says: str = SEEN_AT_HOME) -> tuple[str, str, bool]:
    return f"/ip4/192.168.1.{number}/tcp/1", says, is_in


def in_the_cellar(number: int, *, is_in: bool) -> tuple[str, str, bool]:
    return f"/ip4/10.0.0.{number}/tcp/1", "/ip4/10.0.0.2/tcp/4001", is_in


@pytest.mark.parametrize(
    ("says", "reachable"),
    [
        ([outside(1, is_in=True)], True),
        ([outside(1, is_in=True), *(outside(n, is_in=False) for n in (2, 3, 4))], False),
        ([outside(n, is_in=n < 3) for n in (1, 2, 3, 4)], False),
        ([outside(n, is_in=n < 4) for n in (1, 2, 3, 4)], True),
        ([at_home(3, is_in=True), outside(1, is_in=False)], False),
        # Two networks of one home.
        ([at_home(3, is_in=True), in_the_cellar(4, is_in=True), outside(1, is_in=False)], False),
        ([at_home(n, is_in=True) for n in (3, 4)], True),
        # It says that it sees the node from outside, and is at home as the others.
        ([at_home(3, is_in=True, says=SEEN_OUTSIDE), at_home(4, is_in=False)], False),
    ],
)
async def test_a_hidden_node_is_not_talked_out_of_its_relays(
    says: list[tuple[str, str, bool]], reachable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = AskedHost({fresh_identity().peer_id: said for said in says})
    monkeypatch.setattr(relay_client, "ask_outside", asking(host, list[float]()))
    client = RelayClient(host=cast("Any", host))
    await client._find_out()
    assert client.reachable is reachable


async def test_who_is_reachable_asks_again_when_it_is_time_or_something_has_changed(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, asked_at = AskedHost({fresh_identity().peer_id: outside(1, is_in=True)}), list[float]()
    monkeypatch.setattr(relay_client, "ask_outside", asking(host, asked_at))
    client = RelayClient(host=cast("Any", host))
    async with trio.open_nursery() as nursery:
        start = trio.current_time()
        await nursery.start(client.run)
        await trio.sleep(900)
        client.look_again()
        await trio.sleep(900)
        nursery.cancel_scope.cancel()
    assert [round(at - start) for at in asked_at] == [0, 600, 900, 1500]


async def test_what_changes_while_peers_are_asked_is_asked_about_again(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer_id = fresh_identity().peer_id
    host, asked_at = AskedHost({peer_id: outside(1, is_in=False)}), list[float]()
    monkeypatch.setattr(relay_client, "ask_outside", asking(host, asked_at, takes_s=5.0))
    monkeypatch.setattr(RelayClient, "_reserve_where_needed", trio.lowlevel.checkpoint)
    client = RelayClient(host=cast("Any", host))
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        await trio.sleep(2)
        client.look_again()  # a router has just opened a port
        await trio.sleep(2)
        host.says[peer_id] = outside(1, is_in=True)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert len(asked_at) == 2


Ask = Callable[..., Awaitable[Outside]]


def asking(host: AskedHost, asked_at: list[float], takes_s: float = 0.0) -> Ask:
    async def ask(_host: object, peer_id: PeerId, *, ports: tuple[int, ...]) -> Outside:
        asked_at.append(trio.current_time())
        await trio.sleep(takes_s)
        _, observed, is_in = host.says[peer_id]
        return Outside(
            peer_id=peer_id,
            observed=observed,
            open_ports=ports if is_in else (),
            dialled=True,
            clock_ahead_ms=0,
        )

    return ask

"""Of two connections to one peer both ends keep the same one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from libp2p.abc import INetConn
from libp2p.rcmgr import Direction

from shoal_p2p.net.circuit import CircuitStream
from shoal_p2p.net.connections import SIMULTANEOUS_S, ConnectionTable
from tests.support.nodes import fresh_identity

pytestmark = pytest.mark.virtual_time

ONE, TWO = sorted(fresh_identity().peer_id for _ in range(2))
RELAYED = "/ip4/203.0.113.1/tcp/1/p2p/R/p2p-circuit"


def connection(direction: Direction, *, relayed: bool) -> INetConn:
    below = CircuitStream(cast("Any", None), RELAYED) if relayed else None
    return cast("INetConn", SimpleNamespace(direction=direction, muxed_conn=below))


@pytest.mark.parametrize("own", [ONE, TWO])
@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("direct_first", [False, True])
@pytest.mark.parametrize("apart_s", [0.0, SIMULTANEOUS_S - 1])
async def test_a_direct_connection_is_kept_instead_of_a_simultaneous_circuit(
    own: Any, direction: Direction, direct_first: bool, apart_s: float
) -> None:
    other = TWO if own == ONE else ONE
    table = ConnectionTable(own)
    for circuit_direction in Direction:
        circuit = connection(circuit_direction, relayed=True)
        direct = connection(direction, relayed=False)
        for new in (direct, circuit) if direct_first else (circuit, direct):
            table.add(other, new)
            await trio.sleep(apart_s)
        assert table.connection_of(other) is direct
        table.remove(other, direct)


async def test_a_later_circuit_replaces_a_lost_direct_connection() -> None:
    table = ConnectionTable(ONE)
    table.add(TWO, connection(Direction.INBOUND, relayed=False))
    await trio.sleep(SIMULTANEOUS_S + 1)
    circuit = connection(Direction.INBOUND, relayed=True)
    table.add(TWO, circuit)
    assert table.connection_of(TWO) is circuit


async def test_the_quota_source_of_a_connection_is_its_network() -> None:
    table = ConnectionTable(ONE)
    assert table.source_of(TWO) == ""
    circuit = connection(Direction.INBOUND, relayed=True)
    table.add(TWO, circuit)
    assert table.source_of(TWO) == "/ip4/203.0.113.1/tcp/1/p2p/R"
    table.remove(TWO, circuit)
    assert table.source_of(TWO) == ""
    for _ in range(2):  # on one machine the source stays the same after a reconnect
        near = connection(Direction.INBOUND, relayed=False)
        table.add(TWO, near)
        assert table.source_of(TWO) == TWO
        table.remove(TWO, near)

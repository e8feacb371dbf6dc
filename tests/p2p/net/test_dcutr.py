"""The exchange before a hole punch (libp2p's DCUtR), byte for byte, with any other side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from libp2p.exceptions import BaseLibp2pError
from libp2p.relay.circuit_v2.pb.dcutr_pb2 import HolePunch
from libp2p.utils.varint import encode_varint_prefixed
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_p2p.net.dcutr import MAX_ADDRESSES, DcutrError, PunchPlan, initiate, respond
from tests.support.nodes import fresh_identity
from tests.support.talks import open_talk

ONE, TWO = "/ip4/198.51.100.11/tcp/4001", "/ip4/198.51.100.12/tcp/4002"
RELAY = fresh_identity().peer_id


def add_length_prefix(kind: int, *addresses: str) -> bytes:
    encoded = [Multiaddr(address).to_bytes() for address in addresses]
    message = HolePunch(type=kind, ObsAddrs=encoded)  # type: ignore[arg-type]
    return encode_varint_prefixed(message.SerializeToString())


def pair() -> Any:
    return open_talk(fresh_identity().peer_id, fresh_identity().peer_id)


@pytest.mark.virtual_time
async def test_both_sides_exchange_addresses_and_one_waits() -> None:
    one, two = pair()
    agreed: dict[str, PunchPlan] = {}

    async def follow() -> None:
        await trio.sleep(0.4)  # a round trip
        agreed["two"] = await respond(two, [TWO])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        agreed["one"] = await initiate(one, [ONE])
    assert agreed["one"] == PunchPlan(addresses=(TWO,), wait_s=pytest.approx(0.2))  # type: ignore[arg-type]
    assert agreed["two"] == PunchPlan(addresses=(ONE,), wait_s=0.0)


async def test_the_bytes_are_those_of_the_specification() -> None:
    one, two = pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(respond, two, [])
        await initiate(one, [ONE])
    # Length, type 100 with one address of eight bytes; length, type 300.
    assert one.sent[0] == bytes.fromhex("0c 0864 1208 04c633640b060fa1")
    assert one.sent[1] == bytes.fromhex("03 08ac02")
    assert two.sent == [bytes.fromhex("02 0864")]


async def test_only_a_few_host_addresses_are_accepted() -> None:
    one, two = pair()
    encoded = [
        f"/ip4/198.51.100.9/tcp/1/p2p/{RELAY}/p2p-circuit",
        "/ip4/0.0.0.0/tcp/1",
        "/ip4/198.51.100.1/udp/1/quic-v1",
        f"{ONE}/p2p/{RELAY}",
        ONE,
        *(f"/ip4/198.51.100.2/tcp/{port}" for port in range(1, 100)),
    ]
    await two.write(
        add_length_prefix(HolePunch.CONNECT, *encoded) + add_length_prefix(HolePunch.SYNC)
    )
    agreed = await respond(one, [])
    assert agreed.addresses[0] == ONE
    assert len(agreed.addresses) == MAX_ADDRESSES
    assert not any("198.51.100.9" in address for address in agreed.addresses)


@pytest.mark.parametrize("side", [initiate, respond])
@pytest.mark.parametrize(
    "junk",
    [
        add_length_prefix(HolePunch.SYNC),
        b"\x00",
        b"\xff" * 30,
        encode_varint_prefixed(b"\x08\x64" + bytes(5000)),
        b"",
    ],
)
async def test_a_protocol_violation_ends_the_exchange(
    side: Callable[..., Awaitable[PunchPlan]], junk: bytes
) -> None:
    one, two = pair()
    await two.write(junk)
    await two.close()
    with pytest.raises(Exception) as caught:
        await side(one, [])
    assert isinstance(caught.value, BaseLibp2pError | DcutrError | ValueError) or "Decode" in repr(
        caught.type
    )


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=60), max_size=40), st.booleans())
def test_any_bytes_for_addresses_give_few_addresses_or_none(raw: list[bytes], leads: bool) -> None:
    connect = HolePunch(type=HolePunch.CONNECT, ObsAddrs=raw).SerializeToString()

    async def talk() -> PunchPlan:
        one, two = pair()
        await two.write(encode_varint_prefixed(connect) + add_length_prefix(HolePunch.SYNC))
        return await (initiate if leads else respond)(one, [])

    assert len(trio.run(talk).addresses) <= MAX_ADDRESSES

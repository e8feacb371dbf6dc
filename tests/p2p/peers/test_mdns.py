"""mDNS with real zeroconf on the loopback interface."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest
import trio
import zeroconf
from zeroconf.asyncio import AsyncServiceInfo

from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.peers.mdns import Mdns, _Browser, decode_txt, encode_txt
from shoal_wire.peers import PeerAddresses
from tests.support.nodes import fresh_identity, until

LOOPBACK = ("127.0.0.1",)
ROOT = Path(__file__).parents[3]


def can_multicast() -> bool:
    try:
        zeroconf.Zeroconf(interfaces=list(LOOPBACK)).close()
    except (OSError, zeroconf.Error, RuntimeError):
        return False
    return True


needs_multicast = pytest.mark.skipif(not can_multicast(), reason="no multicast on this machine")

ANNOUNCE = """
import sys, trio
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.peers.mdns import Mdns

async def main():
    me = identity_from_seed(bytes([int(sys.argv[1])]) * 32)
    mdns = Mdns(
        peer_id=me.peer_id, addresses=("/ip4/127.0.0.1/tcp/4001",), swarm=sys.argv[2],
        interfaces=("127.0.0.1",), on_found=lambda peer: print(peer.peer_id, flush=True),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(mdns.run)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()

trio.run(main)
"""


def announce(seed: int, swarm: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", ANNOUNCE, str(seed), swarm],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"},
    )


def names_alone(count: int) -> Iterator[bytes]:
    """Packets that speak of services of ours, and say nothing of them."""

    def encoded(*labels: bytes) -> bytes:
        return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"

    ours = encoded(b"_shoal", b"_tcp", b"local")
    for _ in range(0, count, 20):
        records = b""
        for _ in range(20):
            name = encoded(os.urandom(8).hex().encode(), b"_shoal", b"_tcp", b"local")
            records += ours + struct.pack("!HHIH", 12, 1, 4500, len(name)) + name
        yield struct.pack("!6H", 0, 0x8400, 0, 20, 0, 0) + records


@pytest.mark.slow
@needs_multicast
async def test_names_without_an_answer_delay_no_honest_one() -> None:
    """Nor is a peer of another swarm found, though it was there first."""
    found: list[PeerAddresses] = []
    swarm, seed = os.urandom(32).hex(), int.from_bytes(os.urandom(1), "big")
    mdns = Mdns(
        peer_id=fresh_identity().peer_id,
        addresses=("/ip4/127.0.0.1/tcp/4000",),
        swarm=swarm,
        interfaces=LOOPBACK,
        on_found=found.append,
    )
    friend_id = identity_from_seed(bytes([seed]) * 32).peer_id
    others = [announce(seed ^ 0xFF, "ff" * 32)]
    async with trio.open_nursery() as nursery:
        await nursery.start(mdns.run)
        await until(lambda: mdns.running, patience_s=40)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                sender.setsockopt(socket.SOL_SOCKET, option, 1)
            home = socket.inet_aton(LOOPBACK[0])
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, home)
            sender.bind(("", 5353))
            for packet in names_alone(2_000):
                sender.sendto(packet, ("224.0.0.251", 5353))
                await trio.sleep(0.005)
        try:
            others.append(announce(seed, swarm))
            await until(lambda: found, patience_s=40)
            assert {one.peer_id for one in found} == {friend_id}
            assert found[0].addresses == ("/ip4/127.0.0.1/tcp/4001",)
        finally:
            for process in others:
                process.kill()
                process.wait()
            nursery.cancel_scope.cancel()
    assert not mdns.running


async def test_machine_without_multicast_is_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mdns = Mdns(
        peer_id=fresh_identity().peer_id,
        addresses=("/ip4/127.0.0.1/tcp/4000",),
        interfaces=("203.0.113.77",),  # TEST-NET-3: no machine's own address
        on_found=lambda peer: None,
    )
    with caplog.at_level(logging.WARNING, logger="shoal_p2p.peers.mdns"), trio.fail_after(30):
        await mdns.run()
    assert not mdns.running
    assert len([record for record in caplog.records if record.name == "shoal_p2p.peers.mdns"]) == 1


def test_no_record_and_no_name_of_a_stranger_ends_a_thread() -> None:
    """The library may report a peer in its own loop, where no code catches exceptions."""

    def fails(_txt: Mapping[bytes, bytes | None]) -> None:
        raise ValueError("a stranger's record")

    listener = _Browser(fails)
    for name in ("", "x", "\ud800._shoal._tcp.local.", "a" * 400 + "._shoal._tcp.local."):
        listener.add_service(cast("zeroconf.Zeroconf", None), "_shoal._tcp.local.", name)
    reply: concurrent.futures.Future[bool] = concurrent.futures.Future()
    reply.set_result(True)
    listener._answered(AsyncServiceInfo("_shoal._tcp.local.", "a._shoal._tcp.local."), reply)


def as_received(record: dict[str, str]) -> dict[bytes, bytes | None]:
    return {key.encode(): value.encode() for key, value in record.items()}


def test_txt_record_round_trip() -> None:
    peer_id = fresh_identity().peer_id
    addresses = ("/ip4/127.0.0.1/tcp/4001", "/ip6/fd00::2/tcp/4001")
    record = as_received(encode_txt(peer_id, addresses, "ab" * 8))
    assert all(len(key) + len(value or b"") < 255 for key, value in record.items())
    assert decode_txt(record) == (PeerAddresses(peer_id=peer_id, addresses=addresses), "ab" * 8)


def test_junk_txt_records_give_no_peer() -> None:
    assert decode_txt({}) == (None, "")
    assert decode_txt({b"id": None}) == (None, "")
    assert decode_txt({b"id": os.urandom(40), b"\xff": b"\xff"}) == (None, "")
    peer_id = fresh_identity().peer_id
    junk = {f"a{n}".encode(): os.urandom(30) for n in range(8)}
    peer, swarm = decode_txt({b"id": peer_id.encode(), b"swarm": b"x" * 200, **junk})
    assert peer == PeerAddresses(peer_id=peer_id, addresses=())
    assert len(swarm) == 16

"""Private swarms with real hosts: a key, a list of peers, and the errors on both sides."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack
from pathlib import Path

import nacl.bindings
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st
from libp2p.io.exceptions import IOException
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE_ID

from shoal_p2p.net.access import GREETING, AccessDenied
from shoal_p2p.net.host import DialError
from shoal_p2p.net.private import ClearStream, PrivateStream, WrongSwarmKeyError, xsalsa20
from shoal_p2p.net.swarm import SwarmSettings
from shoal_p2p.net.swarm_key import (
    SwarmKeyError,
    format_swarm_key,
    load_or_create_swarm_key,
    load_swarm_key,
    parse_swarm_key,
)
from tests.support.network import at_port, open_relay
from tests.support.nodes import echo, open_test_host, until

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
NONCE = bytes(range(7, 247, 10))
HELLO = NONCE + xsalsa20(OTHER_KEY, NONCE).encrypt(GREETING)
"""The first bytes of a peer with the other key."""
ECHO = "/test/echo/1"


# The cipher and the file


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=24, max_size=24))
def test_cipher_is_the_one_of_libsodium(key: bytes, nonce: bytes) -> None:
    message = bytes(range(256)) * 3
    sealed = nacl.bindings.crypto_secretbox(message, nonce, key)
    ours = xsalsa20(key, nonce)
    ours.encrypt(bytes(32))  # secretbox keeps the first block for its authenticator
    assert ours.encrypt(message) == sealed[16:]


def test_key_files_are_kubos(tmp_path: Path) -> None:
    path = tmp_path / "swarm.key"
    path.write_text("/key/swarm/psk/1.0.0/\n/base16/\n" + "6b" * 32 + "\n")
    assert load_swarm_key(path) == KEY
    assert parse_swarm_key(format_swarm_key(KEY)) == KEY


def test_a_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "swarm.key"
    key = load_or_create_swarm_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_or_create_swarm_key(path) == load_swarm_key(path) == key
    assert load_or_create_swarm_key(tmp_path / "other.key") != key
    with pytest.raises(SwarmKeyError, match="cannot make the swarm key"):
        load_or_create_swarm_key(tmp_path / "none" / "swarm.key")
    path.write_text("hello")
    with pytest.raises(SwarmKeyError, match="not three lines"):
        load_or_create_swarm_key(path)


@pytest.mark.parametrize(
    "text", ["", "6b" * 32, "/key/swarm/psk/1.0.0/\n/base16/\n6b6b", "a\nb\nc", "\xff"]
)
def test_bad_key_files_are_one_line_without_the_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "swarm.key"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SwarmKeyError, match="swarm key") as caught:
        load_swarm_key(path)
    assert "\n" not in str(caught.value)
    assert "6b6b" not in str(caught.value)
    with pytest.raises(SwarmKeyError, match="cannot read"):
        load_swarm_key(tmp_path / "none")


class Bytes:
    """A byte stream from a list of pieces."""

    def __init__(self, data: bytes, piece: int) -> None:
        self.data, self.piece = data, piece

    async def read(self, n: int | None = None) -> bytes:
        size = min(self.piece, len(self.data) if n is None else n)
        head, self.data = self.data[:size], self.data[size:]
        return head

    async def write(self, data: bytes) -> None:
        self.data += data

    async def close(self) -> None: ...

    def get_remote_address(self) -> None: ...


@pytest.mark.parametrize("piece", [1, 7, 1000])
async def test_stream_arrives_whole_in_any_pieces(piece: int) -> None:
    wire = Bytes(b"", piece)
    sent = GREETING + bytes(range(256))
    writer = PrivateStream(wire, KEY)
    for start in range(0, len(sent), 50):
        await writer.write(sent[start : start + 50])
    reader, received = PrivateStream(wire, KEY), b""
    while len(received) < len(sent):
        received += await reader.read(64)
    assert received == sent


@given(st.binary(min_size=24, max_size=24).filter(lambda n: not n.startswith(GREETING)))
@example(bytes(24))
@example(b"\x16\x03\x01" + NONCE[3:])
def test_every_nonce_works_with_the_right_key(nonce: bytes) -> None:
    wire = Bytes(nonce + xsalsa20(KEY, nonce).encrypt(GREETING), 7)
    assert trio.run(PrivateStream(wire, KEY).read, len(GREETING)) == GREETING


@pytest.mark.parametrize("piece", [1, 7, 1000])
async def test_a_peer_without_a_key_recognises_one_with_a_key(piece: int) -> None:
    with pytest.raises(WrongSwarmKeyError, match="this node has no swarm key"):
        await ClearStream(Bytes(HELLO, piece)).read(1)


OTHERS = {
    "nothing": b"",
    "a cut greeting": b"\x13/multi",
    "a cut nonce": HELLO[:20],
    "http": b"GET / HTTP/1.1\r\nHost: 203.0.113.7:4001\r\nUser-Agent: probe/1.0 (seen)\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + HELLO,
    "zeros": bytes(100),
}


@pytest.mark.parametrize("key", [None, KEY], ids=["public", "private"])
@pytest.mark.parametrize("name", OTHERS)
async def test_other_connections_are_not_blamed_on_the_key(name: str, key: bytes | None) -> None:
    wire = Bytes(OTHERS[name], 1000)
    stream = PrivateStream(wire, key) if key else ClearStream(wire)
    try:
        await stream.read(1)
    except IOException as error:
        assert "key" not in str(error)


@given(st.binary(max_size=200), st.integers(1, 60), st.integers(1, 60))
def test_a_clear_stream_is_unchanged(data: bytes, piece: int, max_bytes: int) -> None:
    sent = GREETING + data

    async def read_all() -> bytes:
        stream, received = ClearStream(Bytes(sent, piece)), b""
        while got := await stream.read(max_bytes):
            received += got
        return received

    assert trio.run(read_all) == sent


# Real hosts


async def test_all_bytes_between_members_are_encrypted() -> None:
    """From the first byte to the last of each direction; the cipher is tested above."""
    async with (
        open_test_host(swarm=SwarmSettings(key=KEY)) as one,
        open_test_host(swarm=SwarmSettings(key=KEY)) as two,
        open_relay(one) as relay,
    ):
        one.set_request_handler(ECHO, echo, max_request_bytes=1 << 21)
        await two.dial(at_port(one, relay.port))
        payload = os.urandom(1 << 16)
        assert await two.request(one.peer_id, ECHO, payload, max_response_bytes=1 << 17) == payload
    assert len(relay.carried) == 2
    for raw in map(bytes, relay.carried):
        nonce, rest = raw[:24], raw[24:]
        clear = xsalsa20(KEY, nonce).decrypt(rest)
        noise = str(NOISE_ID).encode() + b"\n"
        assert clear.startswith(GREETING)
        assert noise in clear[:200]
        assert noise not in raw
        assert len(rest) > len(payload)


@pytest.mark.parametrize(
    ("theirs", "mine", "of_stranger", "of_member"),
    [
        (None, KEY, AccessDenied.KEY_MISSING, AccessDenied.KEY_UNEXPECTED),
        (OTHER_KEY, None, AccessDenied.KEY_UNEXPECTED, AccessDenied.KEY_MISSING),
        (OTHER_KEY, KEY, AccessDenied.KEY_DIFFERS, AccessDenied.KEY_DIFFERS),
    ],
)
async def test_a_peer_without_the_key_is_refused_before_the_handshake_and_both_report_it(
    theirs: bytes | None,
    mine: bytes | None,
    of_stranger: AccessDenied,
    of_member: AccessDenied,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        open_test_host(swarm=SwarmSettings(key=mine)) as member,
        open_test_host(swarm=SwarmSettings(key=theirs)) as stranger,
    ):
        with caplog.at_level(logging.WARNING), pytest.raises(DialError) as caught:
            await stranger.dial(member.listen_addrs()[0], timeout=5)
        assert "\n" not in str(caught.value)
        assert "did not answer" not in str(caught.value), "at once, not by a deadline"
        assert not stranger.connections()
        assert not member.connections()
        assert caught.value.denial is of_stranger
        assert of_stranger.message in str(caught.value)
        assert "--swarm-key FILE" in str(caught.value)
        await until(lambda: member.refused_connections() == {of_member: 1})
        warning = f"refused a connection from 127.0.0.1: {of_member.message}; {of_member.remedy}"
        assert caplog.messages == [warning]
        assert "--swarm-key FILE" in warning


# The list


async def test_a_banned_peer_gets_the_likely_cause_in_a_swarm_without_a_list() -> None:
    async with open_test_host() as peer, open_test_host() as cut_off:
        peer.ban(cut_off.peer_id, seconds=60)
        cut_off.admit_only(None)  # the swarm is known, and admits all
        with pytest.raises(DialError) as caught:
            await cut_off.dial(peer.listen_addrs()[0], timeout=5)
        assert caught.value.denial is AccessDenied.BANNED
        warning = str(caught.value)
        assert "a copy of this folder, or of this machine, runs elsewhere" in warning
        assert "remove its identity.key and node.db" in warning
        assert "--allow-peers" not in warning, "the remedy of another trouble"
        assert "\n" not in warning


async def test_peer_that_is_not_listed_is_refused_after_the_handshake(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncExitStack() as stack:
        member, friend, stranger = [
            await stack.enter_async_context(open_test_host()) for _ in range(3)
        ]
        connected: list[object] = []
        member.add_peer_callbacks(connected=connected.append)
        member.admit_only([member.peer_id, friend.peer_id])
        with caplog.at_level(logging.WARNING), pytest.raises(DialError) as caught:
            await stranger.dial(member.listen_addrs()[0], timeout=5)
        assert "list of peers" in str(caught.value)
        assert "--allow-peers" in str(caught.value)
        assert caught.value.denial is AccessDenied.NOT_LISTED
        await until(lambda: member.refused_connections() == {"not_listed": 1})
        assert f"{stranger.peer_id} is not on the swarm's list of peers" in caplog.text
        assert f"--allow-peers {stranger.peer_id}" in caplog.text
        assert not member.connections()
        assert not connected, "nothing that acts on connections has seen it"
        assert await friend.dial(member.listen_addrs()[0]) == member.peer_id
        with pytest.raises(DialError, match="not on the swarm's list"):
            await member.dial(stranger.listen_addrs()[0])

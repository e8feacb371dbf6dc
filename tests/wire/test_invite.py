"""An invitation round-trips, and any other text is refused in one line."""

from __future__ import annotations

import dataclasses
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_wire.base58 import b58decode, b58encode
from shoal_wire.digests import sha256
from shoal_wire.invite import (
    MAX_ADDRESSES,
    MAX_LINE_CHARS,
    Invite,
    InviteError,
    decode_invite,
    encode_invite,
)
from shoal_wire.types import Digest

PEERS = (
    "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV",
    "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG",
)
SAMPLE = Invite(
    swarm=Digest(bytes(range(32))),
    addresses=(
        f"/ip4/203.0.113.7/tcp/4001/p2p/{PEERS[0]}",
        f"/dns4/a.example/tcp/1/p2p/{PEERS[1]}",
    ),
)
PRIVATE = dataclasses.replace(SAMPLE, private=True, swarm_key=b"k" * 32)
LINE = encode_invite(SAMPLE)

hosts = st.one_of(
    st.ip_addresses(v=4).map(lambda ip: f"/ip4/{ip}"),
    st.ip_addresses(v=6).map(lambda ip: f"/ip6/{ip}"),
    st.text(string.ascii_letters + string.digits + ".-", min_size=1, max_size=40).map(
        lambda name: f"/dns4/{name}"
    ),
)
transports = st.builds(
    lambda host, port, relay: f"{host}/tcp/{port}" + (f"/p2p/{PEERS[0]}/p2p-circuit" * relay),
    hosts,
    st.integers(0, 65535),
    st.booleans(),
)
grouped = st.lists(transports, min_size=1, max_size=MAX_ADDRESSES).flatmap(
    lambda found: st.integers(0, len(found)).map(
        lambda cut: tuple(f"{t}/p2p/{PEERS[n >= cut]}" for n, t in enumerate(found))
    )
)
invites = st.builds(
    lambda swarm, addresses, private, key: Invite(
        swarm=Digest(swarm),
        addresses=addresses,
        private=private,
        swarm_key=key if private else None,
    ),
    st.binary(min_size=32, max_size=32),
    grouped,
    st.booleans(),
    st.none() | st.binary(min_size=32, max_size=32),
)


@given(invites)
def test_an_invitation_round_trips_as_one_word(invite: Invite) -> None:
    line = encode_invite(invite)
    assert decode_invite(line) == invite
    assert line.isascii() and line.isalnum() and len(line) <= MAX_LINE_CHARS


@given(invites, st.data())
def test_one_changed_character_is_refused(invite: Invite, data: st.DataObject) -> None:
    line = encode_invite(invite)
    last = len(line) - 1
    at = data.draw(st.integers(0, last) | st.integers(last - 5, last))
    some = st.sampled_from(string.ascii_letters + string.digits) | st.characters()
    other = data.draw(some.filter(lambda c: c != line[at]))
    for changed in (
        line[:at] + other + line[at + 1 :],
        line[:at] + line[at + 1 :],
        line[:at] + other + line[at:],
    ):
        if changed != line:
            with pytest.raises(InviteError):
                decode_invite(changed)


@given(st.data())
def test_a_cut_line_is_refused(data: st.DataObject) -> None:
    line = encode_invite(PRIVATE)
    start, end = data.draw(st.tuples(st.integers(0, 40), st.integers(0, len(line))))
    if line[start:end] != line:
        with pytest.raises(InviteError):
            decode_invite(line[start:end])


@given(st.text() | st.text("1shoal", max_size=60) | st.text().map(lambda text: "shoal1" + text))
def test_any_text_is_an_invitation_or_one_line_that_repeats_none_of_it(text: str) -> None:
    with pytest.raises(InviteError) as caught:
        decode_invite(text)
    assert str(caught.value).isprintable()


def signed(payload: bytes) -> str:
    """A valid line made by an attacker."""
    return f"shoal1{b58encode(payload + sha256(b'shoal-invite' + bytes([10]) + payload)[:5])}"


@given(st.binary(max_size=300) | st.binary(max_size=120).map(lambda tail: bytes(33) + tail))
def test_whatever_bytes_a_stranger_signs_are_read_or_refused(payload: bytes) -> None:
    line = signed(payload)
    try:
        invite = decode_invite(line)
    except InviteError:
        return
    assert encode_invite(invite) == line


def made_by_a_stranger(transport: bytes, *, flags: int = 0, num: int = 1) -> str:
    peer = b58decode(PEERS[0])
    parts = (bytes([flags]), bytes(32), bytes([len(peer)]), peer, bytes([num]))
    return signed(b"".join(parts) + (bytes([len(transport)]) + transport) * num)


GOOD = b"/ip4/203.0.113.7/tcp/4001"


def test_what_a_stranger_makes_by_the_rules_is_taken() -> None:
    assert decode_invite(made_by_a_stranger(GOOD)).addresses == (
        f"/ip4/203.0.113.7/tcp/4001/p2p/{PEERS[0]}",
    )


@pytest.mark.parametrize(
    "transport",
    [
        b"/ip4/1.2.3.4/tcp/1,/ip4/5.6.7.8/tcp/2",
        b"/ip4/1.2.3.4/tcp/1 --rounds=9",
        b"/unix/etc/passwd",
        b"/ip4/1.2.3.4/tcp/1/../..",
        b"--swarm-key=/etc/passwd",
        b"/dns4/a\x1b[2J/tcp/1",
        b"/dns4/\xff/tcp/1",
        b"/dns4/a\n/tcp/1",
        b"/ip4/1.2.3.4/tcp/1\n",
        b"/ip4/1.2.3.4/udp/1/quic-v1",
        b"",
    ],
)
def test_nothing_but_an_address_stands_in_an_addresss_place(transport: bytes) -> None:
    with pytest.raises(InviteError):
        decode_invite(made_by_a_stranger(transport))


@pytest.mark.parametrize("flags", [2, 4, 8, 128])
def test_a_mark_that_means_nothing_is_refused(flags: int) -> None:
    with pytest.raises(InviteError):
        decode_invite(made_by_a_stranger(GOOD, flags=flags))


def test_more_addresses_than_an_invitation_has_are_refused() -> None:
    decode_invite(made_by_a_stranger(GOOD, num=MAX_ADDRESSES))
    with pytest.raises(InviteError):
        decode_invite(made_by_a_stranger(GOOD, num=MAX_ADDRESSES + 1))


def test_the_kinds_of_wrong_lines_are_distinguished() -> None:
    for text, message in (
        ("", "begins with shoal1"),
        ("/ip4/127.0.0.1/tcp/4001", "begins with shoal1"),
        ("shoal2" + LINE[6:], "another version"),
        (LINE[:-1], "cut or altered"),
        (LINE + "a", "cut or altered"),
        (f"{LINE} ", "cut or altered"),
        ("shoal1" + "1" * MAX_LINE_CHARS, "characters long"),
    ):
        with pytest.raises(InviteError, match=message):
            decode_invite(text)


@pytest.mark.parametrize(
    "bad",
    [
        dataclasses.replace(SAMPLE, swarm=Digest(b"short")),
        dataclasses.replace(SAMPLE, addresses=()),
        dataclasses.replace(SAMPLE, addresses=SAMPLE.addresses * 5),
        dataclasses.replace(SAMPLE, addresses=("/ip4/1.2.3.4/tcp/1",)),
        dataclasses.replace(SAMPLE, swarm_key=b"k" * 32),
        dataclasses.replace(PRIVATE, swarm_key=b"short"),
    ],
)
def test_what_no_reader_takes_is_not_written(bad: Invite) -> None:
    with pytest.raises(InviteError):
        encode_invite(bad)


@given(st.binary(max_size=80))
def test_base58_there_and_back(data: bytes) -> None:
    assert b58decode(b58encode(data)) == data

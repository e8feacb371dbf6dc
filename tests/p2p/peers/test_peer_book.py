"""The saved peers: bounded, ranked, and never in the way of a start."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_p2p.disk import read_kept
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.peers import peer_book
from shoal_p2p.peers.peer_book import PeerBook
from shoal_p2p.state_file import read_state, write_state
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId

IDS = [identity_from_seed(bytes([n]) * 32).peer_id for n in range(1, 13)]


def at(peer_id: PeerId, *ports: int, network: int = 0) -> PeerAddresses:
    addresses = tuple(f"/ip4/10.{network}.0.1/tcp/{port}" for port in ports)
    return PeerAddresses(peer_id=peer_id, addresses=addresses)


def test_ranks_reliable_then_recent_peers_first() -> None:
    book = PeerBook()
    for time, peer_id in enumerate(IDS[:4]):
        book.note_connected(at(peer_id, 1), now_ms=time)
    book.note_failed(IDS[3])
    assert [entry.peer_id for entry in book.ranked()] == [IDS[2], IDS[1], IDS[0], IDS[3]]
    book.note_connected(at(IDS[3], 1), now_ms=9)
    assert book.ranked()[0].peer_id == IDS[3]
    assert book.ranked()[0].num_failures == 0
    assert book.ranked()[0].num_successes == 2


def test_newest_addresses_come_first_and_the_oldest_go() -> None:
    book = PeerBook(max_addresses=3)
    book.note_connected(at(IDS[0], 1, 2), now_ms=1)
    book.note_connected(at(IDS[0], 3, 2), now_ms=2)
    book.note_connected(at(IDS[0], 4), now_ms=3)
    assert book.get(IDS[0]).addresses == at(IDS[0], 4, 3, 2).addresses  # type: ignore[union-attr]
    book.note_failed(IDS[1])
    assert book.get(IDS[1]) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["connected", "dialled", "failed"]),
            st.sampled_from(IDS),
            st.integers(0, 2),
            st.lists(st.integers(1, 65535), max_size=3),
        ),
        max_size=60,
    )
)
def test_bounds_hold_after_every_operation_and_the_file_has_what_the_entries_say(
    operations: list[tuple[str, PeerId, int, list[int]]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peer_book, "MAX_OF_NETWORK", 2)
        book = PeerBook(max_peers=5, max_addresses=3)
        for now, (what, peer_id, network, ports) in enumerate(operations):
            before = {e.peer_id: e.addresses[0] for e in book.ranked()}
            if what == "failed":
                book.note_failed(peer_id)
            else:
                peer = at(peer_id, *ports, network=network)
                book.note_connected(peer, now_ms=now, by_dial=what == "dialled")
            known = {p: entry for p in IDS if (entry := book.get(p)) is not None}
            assert len(known) == len(book) <= 5
            assert all(1 <= len(entry.addresses) <= 3 for entry in known.values())
            assert not ports or peer_id in known or what != "dialled", "the newest is not to go"
            assert _most_of_one_network(e.addresses[0] for e in known.values()) <= 2
            if what != "failed" and ports:
                before[peer_id] = at(peer_id, *ports, network=network).addresses[0]
            if len(before) <= 5 and _most_of_one_network(before.values()) <= 2:
                assert known.keys() == before.keys(), "there was room for all"
            fresh = PeerBook(known.values(), max_peers=5, max_addresses=3)
            assert PeerBook.from_json(book.to_json(), max_peers=5).ranked() == book.ranked()
            assert {entry.peer_id: entry for entry in book.ranked()} == known
            assert [peer_book._rank(e) for e in book.ranked()] == [
                peer_book._rank(e) for e in fresh.ranked()
            ]
            assert json.loads(book.to_json())["peers"] == [
                {"peer_id": e.peer_id, **_row_of(book, e.peer_id)} for e in book.ranked()
            ]


def _most_of_one_network(addresses: Iterable[str]) -> int:
    return max(Counter(address.split(".")[1] for address in addresses).values(), default=0)


def _row_of(book: PeerBook, peer_id: PeerId) -> dict[str, object]:
    entry = book.get(peer_id)
    assert entry is not None
    return {
        "addresses": list(entry.addresses),
        "last_seen_ms": entry.last_seen_ms,
        "num_successes": entry.num_successes,
        "num_failures": entry.num_failures,
    }


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"version": 2, "peers": []}',
        b'{"version": 1, "peers": [3]}',
        b'{"version": 1, "peers": {"a": 1}}',
        b'{"version": 1, "peers": [{"peer_id": "x", "addresses": []}]}',
        b"[" * 100_000,
    ],
)
def test_corrupt_file_is_set_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "peer.db"
    write_state(path, "peers", content)
    with caplog.at_level(logging.WARNING):
        assert read_kept(path, "peers", PeerBook.from_json) is None
    assert len(caplog.records) == 1
    assert read_state(path, "peers") is None
    assert read_state(path, "peers.corrupt") == content


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("last_seen_ms", -1),
        ("num_failures", True),
        ("num_successes", "1"),
        ("addresses", "/ip4/10.0.0.1/tcp/1"),
        ("addresses", ["/ip4/10.0.0.1/udp/1"]),
        ("peer_id", "QmNot"),
    ],
)
def test_every_field_is_checked(field: str, value: object) -> None:
    book = PeerBook()
    book.note_connected(at(IDS[0], 1), now_ms=5)
    content = json.loads(book.to_json())
    assert len(PeerBook.from_json(json.dumps(content))) == 1
    content["peers"][0][field] = value
    with pytest.raises(ValueError, match=r"."):
        PeerBook.from_json(json.dumps(content))

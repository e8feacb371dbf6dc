"""The saved peers: bounded, ranked, and never in the way of a start."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p.net.identity import identity_from_seed
from p2p.peers.peer_book import PeerBook, load_peer_book, save_peer_book
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId

IDS = [identity_from_seed(bytes([n]) * 32).peer_id for n in range(1, 13)]


def at(peer_id: PeerId, *ports: int) -> PeerAddresses:
    addresses = tuple(f"/ip4/10.0.0.1/tcp/{port}" for port in ports)
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


def test_peer_without_address_is_not_kept() -> None:
    book = PeerBook()
    book.note_connected(at(IDS[0]), now_ms=1)
    assert len(book) == 0


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["connected", "failed"]),
        st.sampled_from(IDS),
        st.lists(st.integers(1, 65535), max_size=5),
    ),
    max_size=60,
)


@given(OPERATIONS)
def test_bounds_hold_after_every_operation_and_survive_the_file(
    operations: list[tuple[str, PeerId, list[int]]],
) -> None:
    book = PeerBook(max_peers=5, max_addresses=3)
    for now, (what, peer_id, ports) in enumerate(operations):
        if what == "connected":
            book.note_connected(at(peer_id, *ports), now_ms=now)
            assert not ports or book.get(peer_id) is not None, "the newest is never the one to go"
        else:
            book.note_failed(peer_id)
        assert len(book) <= 5
        assert all(1 <= len(entry.addresses) <= 3 for entry in book.ranked())
    again = PeerBook.from_json(book.to_json(), max_peers=5)
    assert again.ranked() == book.ranked()


def test_saves_and_loads(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    assert len(load_peer_book(path)) == 0
    book = PeerBook()
    book.note_connected(at(IDS[0], 1, 2), now_ms=5)
    save_peer_book(path, book.to_json())
    assert load_peer_book(path).ranked() == book.ranked()
    assert [file.name for file in tmp_path.iterdir()] == ["peers.json"]


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
    path = tmp_path / "peers.json"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert len(load_peer_book(path)) == 0
    assert len(caplog.records) == 1
    assert not path.exists()
    assert (tmp_path / "peers.json.corrupt").read_bytes() == content


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

"""Who was seen on which shard: bounded, aging, and fair between the shards asked for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.shards.directory import ShardDirectory
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId


def addr(number: int, address: str = "/ip4/10.0.0.1/tcp/1") -> PeerAddresses:
    return PeerAddresses(peer_id=PeerId(f"peer{number}"), addresses=(address,))


def ids(directory: ShardDirectory, *shards: int, now: float = 0.0, limit: int = 64) -> list[str]:
    return [item.peer_id for item in directory.find(shards, now, limit=limit)]


def test_a_small_shard_is_not_crowded_out_by_a_big_one() -> None:
    directory = ShardDirectory()
    directory.note(addr(0), [5], now=0.0)
    for number in range(1, 50):
        directory.note(addr(number), [1], now=1.0)
    assert "peer0" in ids(directory, 1, 5, limit=4)


def test_old_entries_and_excluded_peers_are_skipped() -> None:
    directory = ShardDirectory(ttl_s=10.0)
    directory.note(addr(1), [1], now=0.0)
    directory.note(addr(2), [1], now=8.0)
    assert ids(directory, 1, now=12.0) == ["peer2"]
    assert directory.find([1], 12.0, limit=9, exclude={PeerId("peer2")}) == []


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.sampled_from(["/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.2/tcp/1"]),
            st.lists(st.integers(0, 5), max_size=3),
        ),
        max_size=60,
    )
)
def test_it_never_holds_more_than_its_bound_and_finds_what_it_holds(
    notes: list[tuple[int, str, list[int]]],
) -> None:
    """Whatever is seen later replaces what was known of a peer."""
    directory = ShardDirectory(max_peers=4)
    known: dict[int, tuple[str, set[int]]] = {}
    for at, (number, address, shards) in enumerate(notes):
        directory.note(addr(number, address), shards, now=float(at))
        known.pop(number, None)  # a peer that is seen again is the latest
        if shards:
            known[number] = address, set(shards)
        while len(known) > 4:
            known.pop(next(iter(known)))
        assert len(directory) == len(known) <= 4
        assert ids(directory) == []
        for shard in range(6):
            held = [(f"peer{n}", (at,)) for n, (at, on) in known.items() if shard in on]
            found = directory.find([shard], 0.0, limit=64)
            assert [(one.peer_id, one.addresses) for one in found] == held[::-1], "latest first"

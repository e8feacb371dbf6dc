"""What is heard of addresses is not what is known of them, and is dialled in measure."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.net.private_networks import private_network_of
from shoal_p2p.peers import address_policy as policy_module
from shoal_p2p.peers.address_policy import AddressPolicy, AddressSource
from shoal_p2p.peers.discovery import DiscoverySettings, TargetKind
from shoal_p2p.peers.peer_book import MAX_OF_NETWORK, PeerBook
from shoal_p2p.peers.targets import Targets
from shoal_p2p.state_file import read_state
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.types import PeerId
from tests.p2p.peers.bench import Net, discovering, reported
from tests.support.doubles.host import FakeHost
from tests.support.doubles.network import in_virtual_time

pytestmark = pytest.mark.virtual_time

HONEST, *LIARS = (identity_from_seed(bytes([n]) * 32).peer_id for n in range(2, 8))
NAMES = [identity_from_seed(n.to_bytes(32, "big")).peer_id for n in range(1000, 1256)]
TRUE = "/ip4/198.51.100.7/tcp/4001"
THIRD = "/ip4/203.0.113.5/tcp/22"


async def test_four_lists_move_no_honest_peer_and_point_few_dials_at_a_third_party(
    tmp_path: Path,
) -> None:
    net = Net(reported(HONEST, TRUE))
    false = [f"/ip4/203.0.113.5/tcp/{port}" for port in range(22, 30)]
    names = iter(NAMES)
    for liar in LIARS[:4]:
        net.lists[liar] = [
            reported(HONEST, *false),
            *(reported(next(names), *false) for _ in range(63)),
        ]
    async with discovering(net, book_path=tmp_path / "peer.db") as discovery:
        discovery.add_peer(reported(HONEST, TRUE), TargetKind.SAVED)
        await trio.sleep(1)
        for number, liar in enumerate(LIARS[:4]):
            net.connect(liar, address=f"/ip4/192.0.{number}.1/tcp/4001")
        await trio.sleep(50)
        towards = [d for d in net.dialled() if d.startswith("/ip4/203.0.113.5/")]
        assert 0 < len(towards) <= 64, (
            "32 at once and 32 a minute of one network, whatever the names"
        )
        assert max(Counter(towards).values()) <= 8
        (info,) = [i for i in discovery.snapshot() if i.peer_id == HONEST]
        assert info.address == TRUE
        net.lose(HONEST)
        await trio.sleep(2)
        assert net.peers[HONEST].address == TRUE, "found again where it is"
    entry = PeerBook.from_json((read_state(tmp_path / "peer.db", "peers") or b"").decode()).get(
        HONEST
    )
    assert entry is not None
    assert entry.addresses == (TRUE,), "third-party addresses are not saved"


async def test_a_forgotten_peer_that_is_named_again_keeps_its_address_in_the_book() -> None:
    net = Net(reported(HONEST, TRUE))
    async with discovering(net) as discovery:
        discovery.add_peer(reported(HONEST, TRUE), TargetKind.EXCHANGE)
        await trio.sleep(1)
        net.lose(HONEST)
        discovery._targets.drop(HONEST)
        discovery.add_peer(reported(HONEST, THIRD), TargetKind.EXCHANGE)
        target = discovery._targets.get(HONEST)
        assert target is not None
        assert target.addresses == (TRUE, THIRD)


async def test_third_party_addresses_of_connected_peers_are_ignored() -> None:
    net = Net()
    async with discovering(net) as discovery:
        net.connect(HONEST, address=TRUE)
        for kind in (TargetKind.EXCHANGE, TargetKind.MDNS):
            discovery.add_peer(reported(HONEST, THIRD), kind)
        assert HONEST not in discovery._targets
        net.peers[HONEST].announced = (TRUE,)
        await trio.sleep(1)
        discovery.add_peer(reported(HONEST, THIRD), TargetKind.EXCHANGE)
        net.lose(HONEST)
        net.up.add(f"{TRUE}/p2p/{HONEST}")
        await trio.sleep(2)
        assert net.peers[HONEST].address == TRUE
        assert not net.dialled().count(THIRD)


@pytest.mark.parametrize(
    ("seen_at", "reported_address", "dialled"),
    [
        ("/ip4/198.51.100.9/tcp/1", "/ip4/198.51.100.8/tcp/1", True),
        ("/ip4/198.51.100.9/tcp/1", "/ip4/127.0.0.1/tcp/1", False),
        ("/ip4/198.51.100.9/tcp/1", "/ip4/10.1.2.3/tcp/1", False),
        ("/ip4/198.51.100.9/tcp/1", "/ip6/::1/tcp/1", False),
        ("/ip4/198.51.100.9/tcp/1", "/ip6/::ffff:127.0.0.1/tcp/1", False),
        ("/ip4/198.51.100.9/tcp/1", "/ip4/169.254.169.254/tcp/80", False),
        ("/ip4/198.51.100.9/tcp/1", "/ip6/fe80::1/tcp/1", False),
        ("/ip4/198.51.100.9/tcp/1", "/dns4/localhost/tcp/1", False),
        ("/ip4/198.51.100.9/tcp/1", "/ip4/224.0.0.1/tcp/1", False),
        ("/ip4/10.0.0.9/tcp/1", "/ip4/10.1.2.3/tcp/1", True),
        ("/ip4/10.0.0.9/tcp/1", "/ip4/198.51.100.8/tcp/1", True),
        ("/ip4/10.0.0.9/tcp/1", "/ip4/192.168.1.1/tcp/1", False),
        ("/ip4/10.0.0.9/tcp/1", "/ip4/127.0.0.1/tcp/1", False),
        ("/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/7", True),
        ("/ip6/::1/tcp/1", "/ip4/127.0.0.1/tcp/7", True),
        ("/ip4/127.0.0.1/tcp/1", "/ip4/192.168.1.1/tcp/1", True),
        ("/ip4/127.0.0.1/tcp/1", "/ip4/172.16.1.1/tcp/1", False),
        ("", "/ip4/127.0.0.1/tcp/7", False),
    ],
)
async def test_who_is_in_no_private_network_tells_of_none(
    seen_at: str, reported_address: str, dialled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        policy_module, "own_private_networks", lambda: frozenset({"192.168.0.0/16"})
    )
    net = Net()
    liar, name, *_ = NAMES
    net.lists[liar] = [reported(name, reported_address)]
    async with discovering(net):
        net.connect(liar, address=seen_at, announced=(reported_address,))
        await trio.sleep(2)
        assert bool(net.dials) == dialled
        net.lose(liar)
        await trio.sleep(2)
        assert any(dial.address.endswith(liar) for dial in net.dials) == dialled, (
            "the same of its own addresses"
        )


async def test_addresses_of_one_peer_are_limited_and_leave_dials_for_another() -> None:
    net, liar, honest = Net(reported(HONEST, TRUE)), LIARS[0], LIARS[1]
    net.lists[liar] = [
        reported(name, f"/ip4/45.{n}.0.1/tcp/1") for n, name in enumerate(NAMES[:64])
    ]
    net.lists[honest] = [reported(HONEST, TRUE)]
    async with discovering(net):
        net.connect(liar, address="/ip4/45.1.1.1/tcp/1")
        await trio.sleep(30)
        net.connect(honest, address="/ip4/46.1.1.1/tcp/1")
        await trio.sleep(30)
        assert HONEST in net.peers
        false_dials = [d for d in net.dialled() if d != TRUE]
        assert 32 <= len(false_dials) <= 64


async def test_a_peers_own_word_is_dialled_in_measure_too() -> None:
    """A peer with many identities may claim under each to listen at a third party."""
    net = Net()
    async with discovering(net):
        for name in NAMES[:40]:
            net.connect(name, address="/ip4/45.1.1.1/tcp/1", announced=(THIRD,))
        await trio.sleep(1)
        for name in NAMES[:40]:
            net.lose(name)
        await trio.sleep(60)
        assert 0 < net.dialled().count(THIRD) <= 8


# Any course


ADDRESSES = [
    f"/ip4/{host}/tcp/{port}" for host in ("45.0.0.1", "45.0.0.2", "46.0.0.1") for port in (1, 2)
]
SPEAKERS = [None, *(AddressSource(source=f"net {n}", networks=None) for n in range(12))]
HEARD = st.tuples(
    st.sampled_from([TargetKind.EXCHANGE, TargetKind.MDNS]),
    st.sampled_from(SPEAKERS),
    st.lists(st.sampled_from(ADDRESSES), max_size=8).map(tuple),
    st.booleans(),
)


@settings(max_examples=100)
@given(
    proven=st.lists(st.sampled_from(ADDRESSES), min_size=1, max_size=4),
    reported_address=st.lists(st.sampled_from(ADDRESSES), max_size=3, unique=True),
    course=st.lists(HEARD, max_size=30),
)
def test_no_series_of_third_party_addresses_displaces_known_ones(
    proven: list[str],
    reported_address: list[str],
    course: list[tuple[TargetKind, AddressSource | None, tuple[str, ...], bool]],
) -> None:
    targets = Targets(DiscoverySettings(max_targets=4), random.Random(1))
    targets.add(
        reported(HONEST, *(reported_address or proven)),
        TargetKind.INBOUND,
        connected=False,
        now=0.0,
    )
    target = targets.get(HONEST)
    assert target is not None
    for address in proven:
        target.prove(address)
    known = target.known
    assert known[0] == proven[-1]
    names = count()
    for kind, speaker, addresses, connected in course:
        targets.add(
            reported(HONEST, *addresses), kind, connected=connected, now=1.0, source=speaker
        )
        other = reported(NAMES[next(names)], *(addresses or ADDRESSES))
        targets.add(other, kind, connected=False, now=1.0, source=speaker)
        assert targets.get(HONEST) is target, "nor its place"
        assert target.addresses[: len(known)] == known
        assert len(target.addresses) <= MAX_ADDRS_PER_PEER
        assert len(target.third_party) <= MAX_ADDRS_PER_PEER


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 5),
            st.sampled_from(["a", "b", None]),
            st.integers(0, 40),
            st.integers(1, 3),
        ),
        max_size=300,
    )
)
def test_no_course_of_dials_passes_a_bound(
    course: list[tuple[float, str | None, int, int]],
) -> None:
    taken: list[tuple[float, str | None, str]] = []

    async def play() -> None:
        address_policy = AddressPolicy(FakeHost())
        for pause, source, host, port in course:
            await trio.sleep(pause)
            address = f"/ip4/45.0.0.{host}/tcp/{port}"
            if address_policy.may_dial(address, source):
                taken.append((trio.current_time(), source, address))

    in_virtual_time(play)
    for start, *_ in taken:
        minute = [(s, a) for t, s, a in taken if start <= t < start + 60]
        assert len(minute) <= 64, "one network"
        assert max(Counter(a for _, a in minute).values()) <= 8
        assert all(n <= 64 for s, n in Counter(s for s, _ in minute).items() if s is not None)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_every_address_that_is_not_on_the_internet_has_a_home(address: Any) -> None:
    text = str(address)
    is_private = address.is_loopback or address.is_link_local
    assert not is_private or private_network_of(text) is not None
    family = "ip6" if ":" in text else "ip4"
    host = FakeHost()
    host.connect(HONEST, address="/ip4/45.0.0.1/tcp/1")
    assert AddressPolicy(host).speaker(HONEST).is_allowed(f"/{family}/{text}/tcp/1") == (
        private_network_of(text) is None
    )


# The book


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), max_size=60), st.integers(4, 8)
)
def test_a_brief_visitor_evicts_no_peer_from_the_book(
    course: list[tuple[PeerId, int]], max_peers: int
) -> None:
    book = PeerBook(max_peers=max_peers)
    friends = LIARS[:4]
    for number, friend in enumerate(friends):
        book.note_connected(reported(friend, f"/ip4/46.0.{number}.1/tcp/1"), now_ms=number)
        book.note_failed(friend)
    for now, (name, network) in enumerate(course):
        peer = reported(name, f"/ip4/46.0.{network}.2/tcp/1")
        book.note_connected(peer, now_ms=100 + now, by_dial=False)
        assert len(book) <= max_peers
        assert all(book.get(friend) is not None for friend in friends)


def test_one_network_has_a_share_of_the_book_and_loopback_all() -> None:
    book, loopback = PeerBook(), PeerBook()
    friend = reported(HONEST, TRUE)
    book.note_connected(friend, now_ms=0)
    for now, name in enumerate(NAMES):
        book.note_connected(reported(name, f"/ip4/45.0.0.1/tcp/{now + 1}"), now_ms=now)
        loopback.note_connected(reported(name, f"/ip4/127.0.0.1/tcp/{now + 1}"), now_ms=now)
    assert book.get(HONEST) is not None
    assert len(book) == 1 + MAX_OF_NETWORK
    assert len(loopback) == len(NAMES)

"""Discovery: stays connected for ever, to few enough, without hammering anybody."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from shoal_p2p.peers.address_policy import AddressPolicy
from shoal_p2p.peers.discovery import (
    Discovery,
    DiscoverySettings,
    Preferences,
    TargetKind,
    TargetState,
    parse_bootstrap,
)
from shoal_p2p.peers.peer_book import PeerBook
from shoal_p2p.state_file import read_state
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId
from tests.p2p.peers.bench import ME, Net, discovering, full, peer, reported

pytestmark = pytest.mark.virtual_time

# Backoff


async def test_bootstrap_that_is_down_is_tried_for_ever() -> None:
    host, boot = Net(), peer(1)
    async with discovering(host, boot) as discovery:
        await trio.sleep(3600)
        assert discovery.solo
        times = host.dial_times(full(boot))
        gaps = [b - a for a, b in pairwise(times)]
        assert times[0] < 0.1
        assert max(gaps) <= 17.1, "where no peer has ever answered, four a minute"
        assert len(times) <= 4 + 4 * 60
        assert len({round(gap, 3) for gap in gaps}) > 10, "jitter: no two nodes in step"
        (info,) = discovery.snapshot()
        assert info.kind == TargetKind.BOOTSTRAP
        assert info.attempts == len(times)
        assert "no peer at" in info.last_error
        assert info.next_try_s is not None
        host.up.add(full(boot))
        await trio.sleep(17.1)
        assert not discovery.solo
        (info,) = discovery.snapshot()
        assert (info.state, info.attempts) == (TargetState.CONNECTED, 0)
        assert (info.last_error, info.next_try_s) == ("", None)


async def test_a_bootstrap_that_was_there_is_found_soon_however_long_it_was_away() -> None:
    boot = peer(1)
    host = Net(boot)
    async with discovering(host, boot) as discovery:
        await trio.sleep(30)
        host.up.clear()
        host.lose(boot.peer_id)
        host.dials.clear()
        await trio.sleep(3600)
        times = host.dial_times(full(boot))
        assert max(b - a for a, b in pairwise(times)) <= 8.1
        assert len(times) < 3600, "and is not hammered"
        host.up.add(full(boot))
        await trio.sleep(8.1)
        assert not discovery.solo


async def test_bootstraps_dead_for_hours_are_tried_and_logged_at_a_limited_rate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host, first, second = Net(), peer(1), peer(2)
    with caplog.at_level(logging.INFO, logger="shoal_p2p.peers.discovery"):
        # Slower than in life, or six hours are half a minute of the test's time.
        slow = DiscoverySettings(backoff_first_s=5.0, bootstrap_backoff_max_s=60.0)
        async with discovering(host, first, second, settings=slow):
            await trio.sleep(6 * 3600)
            lines = [record.getMessage() for record in caplog.records]
            assert 8 < len(lines) < 16, "often at first, hourly later"
            assert lines[0].startswith("no bootstrap has answered for 1 min (no peer at ")
            assert "answered for 5 h" in lines[-1]
            assert all("\n" not in line for line in lines)
            for boot in (first, second):
                times = host.dial_times(full(boot))
                assert times[-1] > 6 * 3600 - 61, "and it is still trying"
            host.up.add(full(second))
            await trio.sleep(1800)
            assert host.peers.keys() == {second.peer_id}
            reported = caplog.records[-1].getMessage()
            assert reported == "a bootstrap answers again", "another dead one is not logged"


async def test_strangers_to_the_swarm_are_no_reason_to_stop_looking() -> None:
    host = Net(*map(peer, range(1, 9)))
    strangers = {peer(n).peer_id for n in range(100, 110)}
    for stranger in strangers:
        host.connect(stranger)
    settings = DiscoverySettings(target_peers=4)
    known = Preferences(counts=lambda peer_id: peer_id not in strangers)
    async with discovering(host, settings=settings, preferences=known) as discovery:
        for n in range(1, 9):
            discovery.add_peer(peer(n), TargetKind.MDNS)
        await trio.sleep(60)
        assert len(host.peers.keys() - strangers) == 4
        assert discovery.num_missing == 0


async def test_backoff_of_peers_grows_to_thirty_seconds() -> None:
    host = Net()
    async with discovering(host) as discovery:
        host.up.add(full(peer(1)))
        discovery.add_peer(peer(1), TargetKind.SAVED)
        await trio.sleep(1)
        host.up.clear()
        host.lose(peer(1).peer_id)
        host.dials.clear()
        await trio.sleep(3600)
        times = host.dial_times(full(peer(1)))
        gaps = [b - a for a, b in pairwise(times)]
        assert max(gaps[:2]) <= 2.1
        assert 15 < max(gaps) <= 30.1
        assert sum(gaps[10:]) / len(gaps[10:]) == pytest.approx(15, abs=4), "full jitter"


async def test_lost_peer_is_redialled_at_once() -> None:
    boot = peer(1)
    host = Net(boot)
    async with discovering(host, boot):
        for _ in range(20):
            await trio.sleep(100)
            assert host.peers
            host.lose(boot.peer_id)
            await trio.sleep(0.6)
            assert host.peers


# Full houses


@pytest.mark.parametrize(("has_company", "usual_s"), [(True, 60.0), (False, 4.0)])
async def test_who_was_let_go_by_a_full_bootstrap_waits_before_it_comes_back(
    has_company: bool, usual_s: float
) -> None:
    boot, waits = peer(1), list[float]()
    host = Net(boot)
    async with discovering(host, boot) as discovery:
        if has_company:
            host.connect(peer(2).peer_id)
        for _ in range(20):
            await trio.sleep(100)
            host.dials.clear()
            lost_at = trio.current_time()
            discovery.expect_full(boot.peer_id)
            host.lose(boot.peer_id)
            assert discovery.full_s(boot.peer_id) is not None
            await trio.sleep(100)
            waits.append(host.dial_times(full(boot))[0] - lost_at)
            assert discovery.full_s(boot.peer_id) is None
    assert usual_s / 2 <= min(waits) < usual_s * 3 / 4
    assert usual_s * 5 / 4 < max(waits) <= usual_s * 3 / 2 + 0.1


async def test_a_bootstrap_is_let_go_by_who_has_enough_peers_and_visited_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    boot = peer(1)
    host = Net(*map(peer, range(1, 6)))
    settings = DiscoverySettings(target_peers=4)
    async with discovering(host, boot, settings=settings) as discovery:
        for n in range(2, 6):
            discovery.add_peer(peer(n), TargetKind.EXCHANGE)
        await trio.sleep(50)
        assert boot.peer_id in host.peers
        await trio.sleep(50)
        assert boot.peer_id not in host.peers
        await trio.sleep(4 * 3600)
        assert 12 < len(host.dial_times(full(boot))) < 40
        # And it is wanted again as soon as a peer is missing.
        host.up = {full(boot)}
        for n in range(2, 6):
            host.lose(peer(n).peer_id)
        await trio.sleep(91)
        assert boot.peer_id in host.peers
    assert "no bootstrap has answered" not in caplog.text


@pytest.mark.parametrize("away_s", [0, 200])
async def test_a_visit_to_a_bootstrap_asks_it_and_is_short(away_s: int) -> None:
    """A node that has enough peers makes no more than a visit of its first connection, too, where
    the bootstrap was down or full before."""
    host, boot = Net(*map(peer, range(2, 6))), peer(1)
    settings, stays = DiscoverySettings(target_peers=4), [0]
    async with discovering(host, boot, settings=settings) as discovery:
        for n in range(2, 6):
            discovery.add_peer(peer(n), TargetKind.EXCHANGE)
        await trio.sleep(away_s)
        host.up.add(full(boot))
        for _ in range(3600):
            await trio.sleep(1)
            if boot.peer_id in host.peers:
                stays[-1] += 1
            elif stays[-1]:
                stays.append(0)
    stays.pop()
    num_queries = [peer_id for _, peer_id in host.exchanges].count(boot.peer_id)
    assert num_queries >= len(stays), "each time"
    if not away_s:
        assert stays.pop(0) >= settings.backoff_s
    assert len(stays) >= 3
    assert all(settings.visit_stay_s <= stay <= settings.visit_stay_s + 16 for stay in stays)


async def test_with_enough_peers_each_other_one_is_visited_once_and_disconnected() -> None:
    host = Net(*map(peer, range(1, 31)))
    settings, most = DiscoverySettings(target_peers=4), 0
    were_connected = set[PeerId]()
    host.add_peer_callbacks(connected=were_connected.add)
    async with discovering(host, settings=settings) as discovery:
        for n in range(1, 41):  # ten of them never answer
            discovery.add_peer(peer(n), TargetKind.EXCHANGE)
        for _ in range(600):
            await trio.sleep(1)
            most = max(most, len(host.peers))
        assert were_connected == {peer(n).peer_id for n in range(1, 31)}
        assert most <= 6, "one at a time"
        assert len(host.peers) == 4
        dials = [host.dial_times(full(peer(n))) for n in range(1, 41)]
        assert {len(times) for times in dials[:30]} == {1}, "who has been met is not dialled again"
        assert {len(times) for times in dials[30:]} == {settings.give_up_after}


async def test_a_visited_peer_stays_where_others_have_gone() -> None:
    host = Net(*map(peer, range(1, 6)))
    settings = DiscoverySettings(target_peers=4, next_visit_s=10.0)
    async with discovering(host, settings=settings) as discovery:
        for n in range(1, 6):
            discovery.add_peer(peer(n), TargetKind.EXCHANGE)
        await trio.sleep(16)
        assert len(host.peers) == 5
        visited = PeerId(host.dials[-1].address.rpartition("/")[2])
        host.up.clear()
        for one in host.peers.keys() - {visited}:
            host.lose(one)
        await trio.sleep(30)
        assert set(host.peers) == {visited}


# How many


async def test_dials_up_to_the_target_and_no_further() -> None:
    host = Net(*map(peer, range(20)))
    settings = DiscoverySettings(target_peers=5)
    boot = peer(1).peer_id
    async with discovering(host, peer(1), settings=settings) as discovery:

        def others() -> list[PeerId]:
            return [peer_id for peer_id in host.peers if peer_id != boot]

        for n in range(2, 20):
            discovery.add_peer(peer(n), TargetKind.EXCHANGE)
        await trio.sleep(60)
        assert len(others()) == 5
        assert boot in host.peers
        for lost in others()[:4]:
            host.lose(lost)
        # Long enough, too, for a node with enough peers to disconnect the bootstrap.
        await trio.sleep(60)
        assert len(others()) == 5


async def test_dials_a_few_at_a_time() -> None:
    host = Net(dial_s=3.0)
    settings = DiscoverySettings(target_peers=100, max_dials=4)
    async with discovering(host, *map(peer, range(1, 4)), settings=settings) as discovery:
        for n in range(4, 60):
            discovery.add_peer(peer(n), TargetKind.EXCHANGE)
        await trio.sleep(120)
        assert host.most_dialling == 4
        assert {dial.address for dial in host.dials} == {full(peer(n)) for n in range(1, 60)}


async def test_targets_are_bounded_and_third_party_ones_are_forgotten() -> None:
    host = Net()
    settings = DiscoverySettings(max_targets=10, give_up_after=3)
    async with discovering(host, peer(1), settings=settings) as discovery:
        for n in range(2, 500):
            discovery.add_peer(peer(n), TargetKind.EXCHANGE)
            assert len(discovery.snapshot()) <= 10
        await trio.sleep(600)
        assert [info.peer_id for info in discovery.snapshot()] == [peer(1).peer_id]


# Peers from peers


async def test_learns_peers_from_peers() -> None:
    chain = [peer(n) for n in range(1, 6)]
    host = Net(*chain)
    host.lists = {a.peer_id: [b] for a, b in pairwise(chain)}
    host.lists[chain[-1].peer_id] = [reported(ME, *chain[0].addresses)]
    async with discovering(host, chain[0]) as discovery:
        await trio.sleep(30)
        assert host.peers.keys() == {p.peer_id for p in chain}
        kinds = [info.kind for info in discovery.snapshot()]
        assert kinds == [TargetKind.BOOTSTRAP] + 4 * [TargetKind.EXCHANGE]


async def test_a_peer_that_connects_while_peers_are_missing_is_queried_at_once() -> None:
    host = Net()
    async with discovering(host):
        host.connect(peer(1).peer_id)
        await trio.sleep(600)
        host.connect(peer(2).peer_id)
        at = trio.current_time()
        await trio.sleep(1.0)
        assert host.exchanges[-1][0] >= at


async def test_who_says_late_where_it_listens_is_found_again() -> None:
    other = peer(2)
    host = Net(other)
    async with discovering(host):
        await trio.sleep(60)
        host.connect(other.peer_id, address=other.addresses[0])
        await trio.sleep(3)
        host.peers[other.peer_id].announced = other.addresses
        await trio.sleep(1)
        host.lose(other.peer_id)
        await trio.sleep(5)
        assert other.peer_id in host.peers


async def test_peer_exchange_that_fails_is_survived() -> None:
    boot, other = peer(1), peer(2)
    host = Net(boot, other)

    async def fetch(_peer_id: PeerId) -> list[PeerAddresses]:
        host.exchanges.append((0.0, boot.peer_id))
        if len(host.exchanges) == 1:
            raise RuntimeError("junk from the peer")
        return [other]

    host.fetch = fetch  # type: ignore[method-assign,assignment]
    async with discovering(host, boot):
        await trio.sleep(90)
        assert other.peer_id in host.peers


async def test_addresses_from_others_are_checked() -> None:
    host = Net()
    bad = ("", "/ip4/0.0.0.0/tcp/1", "/ip4/1.2.3.4/udp/1", "/ip6/::/tcp/1", "junk", "/unix/x")
    async with discovering(host) as discovery:
        many = tuple(f"/ip4/10.0.0.1/tcp/{port}" for port in range(1, 101))
        for name, listed in ((peer(1).peer_id, bad), (peer(2).peer_id, many), (ME, many)):
            discovery.add_peer(reported(name, *listed), TargetKind.EXCHANGE)
        await trio.sleep(4)
        assert {dial.address.rpartition("/")[2] for dial in host.dials} == {peer(2).peer_id}
        assert len({dial.address for dial in host.dials}) == 8


async def test_second_address_is_tried_soon() -> None:
    host = Net(dial_s=5.0)
    addresses = ("/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.2/tcp/1")
    both = reported(peer(1).peer_id, *addresses)
    host.up = {full(reported(both.peer_id, addresses[1]))}
    async with discovering(host) as discovery:
        discovery.add_peer(both, TargetKind.MDNS)
        await trio.sleep(5.6)
        assert both.peer_id in host.peers


# Saved peers


async def test_saved_peers_bring_a_node_back_without_bootstrap(tmp_path: Path) -> None:
    path = tmp_path / "peer.db"
    host = Net(peer(1), peer(2))
    host.lists = {peer(1).peer_id: [peer(2)]}
    async with discovering(host, peer(1), book_path=path):
        await trio.sleep(60)
    assert {
        e.peer_id for e in PeerBook.from_json((read_state(path, "peers") or b"").decode()).ranked()
    } == {
        peer(1).peer_id,
        peer(2).peer_id,
    }
    again = Net(peer(2))
    async with discovering(again, book_path=path) as discovery:
        await trio.sleep(5)
        assert again.peers.keys() == {peer(2).peer_id}
        assert not discovery.solo
    assert (
        PeerBook.from_json((read_state(path, "peers") or b"").decode()).ranked()[0].peer_id
        == peer(2).peer_id
    )


@pytest.mark.parametrize("is_dialled", [True, False])
async def test_a_connected_peer_is_on_disk_within_a_second(
    tmp_path: Path, is_dialled: bool
) -> None:
    path = tmp_path / "peer.db"
    host = Net(peer(1)) if is_dialled else Net()
    async with discovering(host, book_path=path) as discovery:
        await trio.sleep(20)
        if is_dialled:
            discovery.add_peer(peer(1), TargetKind.EXCHANGE)
        else:
            at = "/ip4/10.0.0.9/tcp/1"
            host.connect(peer(1).peer_id, address=at, announced=peer(1).addresses)
        await trio.sleep(1.05)
        known = PeerBook.from_json((read_state(path, "peers") or b"").decode()).get(peer(1).peer_id)
    assert known is not None
    assert known.addresses == peer(1).addresses


def test_strangers_names_do_not_keep_the_disk_busy() -> None:
    book = PeerBook()
    for number in range(1, 200):
        book.note_connected(peer(number), now_ms=number, by_dial=False)
        book.note_connected(peer(number), now_ms=number, by_dial=False)
    assert book.num_urgent == 64
    book.note_connected(peer(7), now_ms=1)
    book.note_connected(peer(7), now_ms=1)
    assert book.num_urgent == 65, "a peer that it reaches itself is saved at once all the same"


async def test_an_unwritable_book_does_not_stop_the_node(tmp_path: Path) -> None:
    host = Net(peer(1))
    path = tmp_path / "gone" / "peer.db"
    async with discovering(host, peer(1), book_path=path):
        await trio.sleep(100)
        assert host.peers


@pytest.mark.parametrize("text", ["", "/ip4/127.0.0.1/tcp/4001", "localhost:4001"])
def test_bootstrap_without_a_peer_id_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="/p2p/") as caught:
        parse_bootstrap((text,))
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="/p2p/"):
        Discovery(host=Net(), address_policy=AddressPolicy(Net()), bootstrap=(text,))

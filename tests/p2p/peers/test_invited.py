"""An invitation is untrusted text: it cannot aim its reader at a third party."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.net import names as names_file
from shoal_p2p.net.address import host_and_port
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.peers import dialling
from shoal_p2p.peers.discovery import DiscoverySettings, TargetKind
from shoal_wire.invite import Invite, decode_invite, encode_invite
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import Digest, PeerId
from tests.p2p.peers.bench import Net, discovering, reported
from tests.support.doubles.host import Direction
from tests.support.doubles.network import in_virtual_time

NAMES = [identity_from_seed(n.to_bytes(32, "big")).peer_id for n in range(2000, 2008)]
THIRD = "/ip4/203.0.113.5/tcp/22"
LOOKED_UP = {
    "/dns4/a.example/tcp/22": (THIRD,),
    "/dns/b.example/tcp/22": ("/ip4/203.0.113.6/tcp/22", THIRD),
    "/dns6/c.example/tcp/22": ("/ip6/2001:db8::5/tcp/22",),
    "/dns4/a.example/tcp/23": ("/ip4/203.0.113.5/tcp/23",),
}
WAYS = [THIRD, "/ip4/203.0.113.6/tcp/22", "/ip6/2001:db8::5/tcp/22", *LOOKED_UP]
CIRCUITS = [f"{way}/p2p/{NAMES[0]}/p2p-circuit" for way in (THIRD, "/ip4/203.0.113.6/tcp/22")]


def invited(*addresses: str) -> tuple[str, ...]:
    """Return the addresses that a reader of an invitation with these has."""
    line = encode_invite(Invite(swarm=Digest(bytes(32)), addresses=addresses))
    return decode_invite(line).addresses


async def dials(
    net: Net, given_: tuple[str, ...], *, minutes: int, is_typed: bool = False
) -> Mapping[tuple[str, int], list[float]]:
    """Return when each place was dialled by a node that was given these addresses."""
    known = DiscoverySettings(invited=frozenset() if is_typed else frozenset(given_))
    peers = [_split(address) for address in given_]
    async with discovering(net, *peers, settings=known):
        await trio.sleep(60 * minutes)
    found: dict[tuple[str, int], list[float]] = {}
    for dial in net.dials:
        place = host_and_port(dial.address.rpartition("/p2p/")[0])
        found.setdefault(place, []).append(dial.at_s)
    return found


def _split(address: str) -> PeerAddresses:
    transport, _, peer_id = address.rpartition("/p2p/")
    return reported(PeerId(peer_id), transport)


def assert_within_budget(times: list[float]) -> None:
    """Four at once and four a minute, in any stretch of time."""
    for number, start in enumerate(times):
        for count, at in enumerate(times[number:], 1):
            assert count <= 4 + (at - start) * 4 / 60 + 1e-6, f"{count} in {at - start:.1f} s"


@pytest.mark.slow
@settings(max_examples=25)
@given(
    typed_peers=st.lists(
        st.tuples(st.sampled_from(WAYS + CIRCUITS), st.sampled_from(NAMES)),
        min_size=1,
        max_size=8,
        unique=True,
    ),
    is_typed=st.booleans(),
)
def test_no_invitation_has_a_place_dialled_beyond_its_budget(
    typed_peers: list[tuple[str, PeerId]], is_typed: bool
) -> None:
    async def play() -> None:
        addresses = invited(*(f"{way}/p2p/{name}" for way, name in typed_peers))
        net = Net(names=dict(LOOKED_UP))
        found = await dials(net, addresses, minutes=10, is_typed=is_typed)
        assert found, "and yet each is tried"
        for times in found.values():
            assert_within_budget(times)
            assert times[-1] > 9 * 60, "for ever"

    in_virtual_time(play)


@pytest.mark.virtual_time
async def test_who_answers_and_is_no_peer_of_shoal_proves_nothing() -> None:
    class Foreign(Net):
        """A foreign libp2p node, which disconnects peers that are of no use to it."""

        async def _dial(self, target: object) -> None:
            peer_id = NAMES[0]
            self.connect(peer_id, address=THIRD, direction=Direction.OUT, agent="kubo/0.22.0")
            await trio.sleep(1.5)
            self.lose(peer_id)

    found = await dials(Foreign(), invited(f"{THIRD}/p2p/{NAMES[0]}"), minutes=10)
    assert_within_budget(found[host_and_port(THIRD)])


@pytest.mark.virtual_time
async def test_where_a_peer_of_shoal_has_answered_it_is_found_again_soon() -> None:
    address = f"{THIRD}/p2p/{NAMES[0]}"
    net = Net(reported(NAMES[0], THIRD))
    known = DiscoverySettings(invited=frozenset({address}))
    async with discovering(net, reported(NAMES[0], THIRD), settings=known):
        for _ in range(5):
            await trio.sleep(30)
            assert NAMES[0] in net.peers
            net.up.clear()
            net.lose(NAMES[0])
            net.dials.clear()
            await trio.sleep(600)
            times = net.dial_times(address)
            assert max(b - a for a, b in pairwise(times)) <= 8.1
            net.up.add(address)


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("place", "is_dialled"),
    [
        ("/ip4/203.0.113.5/tcp/22", True),
        ("/ip4/169.254.169.254/tcp/80", False),
        ("/ip6/fe80::1/tcp/80", False),
        ("/ip4/10.1.2.3/tcp/22", False),
        ("/ip4/192.168.1.1/tcp/80", True),
        ("/ip4/172.16.0.1/tcp/80", False),
        ("/ip4/100.64.0.1/tcp/80", False),
        ("/ip6/fd00::1/tcp/80", False),
        ("/ip4/224.0.0.1/tcp/80", False),
        ("/ip4/127.0.0.1/tcp/6379", False),
    ],
)
@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("is_typed", [False, True])
async def test_an_invitation_leads_into_no_private_network_of_others(
    place: str, is_dialled: bool, by_name: bool, is_typed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "own_private_networks", lambda: frozenset({"192.168.0.0/16"}))
    name = "/dns/a.example/tcp/1"
    address = f"{name if by_name else place}/p2p/{NAMES[0]}"
    net = Net(names={name: (place,)})
    found = await dials(net, invited(address), minutes=2, is_typed=is_typed)
    assert bool(found) == (is_dialled or is_typed), "what was typed is what the user wants"
    for times in found.values():
        assert_within_budget(times)


@pytest.mark.virtual_time
async def test_text_around_an_invitation_is_no_part_of_it() -> None:
    typed, invited_at = "/ip4/10.1.2.3/tcp/22", "/ip4/10.1.2.4/tcp/22"
    net = Net()
    known = DiscoverySettings(invited=frozenset({f"{invited_at}/p2p/{NAMES[0]}"}))
    async with discovering(
        net, reported(NAMES[0], invited_at), reported(NAMES[1], typed), settings=known
    ):
        await trio.sleep(5)
    assert set(net.dialled()) == {typed}


@pytest.mark.virtual_time
async def test_third_party_addresses_take_no_dial_of_the_configured_ones() -> None:
    boot = reported(NAMES[0], THIRD)
    net = Net()
    async with discovering(net, boot) as discovery:
        for name in NAMES[1:]:
            discovery.add_peer(reported(name, THIRD), TargetKind.EXCHANGE)
        await trio.sleep(600)
    times = [dial.at_s for dial in net.dials if dial.address.endswith(NAMES[0])]
    assert max(b - a for a, b in pairwise(times)) <= 17.1


async def test_a_name_is_looked_up_as_the_system_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert THIRD in await names_file.resolve(THIRD, NAMES[0])
    found = await names_file.resolve("/dns4/localhost/tcp/22", NAMES[0])
    assert found == ("/ip4/127.0.0.1/tcp/22",)
    circuit = f"/dns4/localhost/tcp/22/p2p/{NAMES[0]}/p2p-circuit"
    assert await names_file.resolve(circuit, NAMES[1]) == (
        f"/ip4/127.0.0.1/tcp/22/p2p/{NAMES[0]}/p2p-circuit",
    )
    assert await names_file.resolve("/dns4/no-such-name.invalid/tcp/22", NAMES[0]) == ()

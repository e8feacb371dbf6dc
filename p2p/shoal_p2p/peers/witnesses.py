"""Chooses the peers that report this node's reachability and the time. No I/O of its own.

Reports are unverified and peer ids are free, so all peers of one network have one vote. With three
or more connected networks, one peer of each is asked; with fewer, as in a home network, several of
each in turn.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from shoal_p2p.net.address import host_and_port
from shoal_p2p.net.connections import ConnectionInfo
from shoal_p2p.net.private_networks import private_network_of
from shoal_p2p.peers.skew import MIN_VOTERS
from shoal_wire.types import PeerId

MAX_WITNESSES = 5
"""Peers asked each time, so that one liar has no majority."""


def witnesses(
    connections: Iterable[ConnectionInfo], rng: random.Random, *, most: int = MAX_WITNESSES
) -> list[PeerId]:
    """Return some random connected peers. Each peer of this machine counts as a network."""
    by_network: dict[str, list[PeerId]] = {}
    for connection in sorted(connections, key=lambda one: one.peer_id):
        network = connection.network or connection.peer_id
        by_network.setdefault(network, []).append(connection.peer_id)
    networks = list(by_network.values())
    for peers in networks:
        rng.shuffle(peers)
    rng.shuffle(networks)
    turns = 1 if len(networks) >= MIN_VOTERS else most
    found = [peers[turn] for turn in range(turns) for peers in networks if turn < len(peers)]
    return found[:most]


def outsiders(
    reports: Mapping[PeerId, bool], connections: Iterable[ConnectionInfo]
) -> dict[PeerId, bool]:
    """Prefer reports from peers on public addresses; otherwise use all.

    A peer in the same private network can connect where outside peers cannot. The address at which
    a peer claims to see this node proves nothing; what counts is the address of its connection.
    """
    reporters = set(reports)
    public = {
        one.peer_id
        for one in connections
        if one.address and private_network_of(host_and_port(one.address)[0]) is None
    }
    counted = reporters & public or reporters
    return {peer_id: is_so for peer_id, is_so in reports.items() if peer_id in counted}


def most_say_so(reports: Mapping[PeerId, bool], connections: Iterable[ConnectionInfo]) -> bool:
    """Return whether more networks report True than False. The majority of its peers decides for a
    network.

    Peers of this machine, and disconnected ones, each count as a network.
    """
    networks = {one.peer_id: one.network for one in connections}
    voices: dict[str, list[bool]] = {}
    for peer_id, is_so in reports.items():
        voices.setdefault(networks.get(peer_id) or peer_id, []).append(is_so)
    return _is_most([_is_most(peers) for peers in voices.values()])


def _is_most(voices: list[bool]) -> bool:
    return 2 * sum(voices) > len(voices)

"""Choice of the peers that say how this one looks from outside and what the time is.

No I/O of its own.

What peers say is hearsay, and names are free: many of one network are one voice. Where three
networks or more are connected, each is asked once; where there are fewer, as in a house, by turns.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from shoal_p2p.net.address import host_and_port
from shoal_p2p.net.connections import ConnectionInfo
from shoal_p2p.net.private_networks import private_network_of
from shoal_p2p.peers.skew import ENOUGH_VOICES
from shoal_wire.types import PeerId

MOST_ASKED = 5
"""Peers asked each time: one liar has no majority."""


def witnesses(
    connections: Iterable[ConnectionInfo], rng: random.Random, *, most: int = MOST_ASKED
) -> list[PeerId]:
    """Return some connected peers, by chance; those of this machine are a network each."""
    by_network: dict[str, list[PeerId]] = {}
    for connection in sorted(connections, key=lambda one: one.peer_id):
        network = connection.network or connection.peer_id
        by_network.setdefault(network, []).append(connection.peer_id)
    networks = list(by_network.values())
    for peers in networks:
        rng.shuffle(peers)
    rng.shuffle(networks)
    turns = 1 if len(networks) >= ENOUGH_VOICES else most
    found = [peers[turn] for turn in range(turns) for peers in networks if turn < len(peers)]
    return found[:most]


def outsiders(
    said: Mapping[PeerId, bool], connections: Iterable[ConnectionInfo]
) -> dict[PeerId, bool]:
    """Return what those say who come from a public address; what all say, if nobody does.

    Who is in the same home gets in where nobody else does. Where a peer says that it sees this node
    is no sign of that, for it may say anything: what counts is where its connection comes from.
    """
    everybody = set(said)
    public = {
        one.peer_id
        for one in connections
        if one.address and private_network_of(host_and_port(one.address)[0]) is None
    }
    heard = everybody & public or everybody
    return {peer_id: is_so for peer_id, is_so in said.items() if peer_id in heard}


def most_say_so(said: Mapping[PeerId, bool], connections: Iterable[ConnectionInfo]) -> bool:
    """Return whether more networks say so than not; of one network, most of its peers decide.

    Peers of this machine, and those that are gone, are a network each.
    """
    networks = {one.peer_id: one.network for one in connections}
    voices: dict[str, list[bool]] = {}
    for peer_id, is_so in said.items():
        voices.setdefault(networks.get(peer_id) or peer_id, []).append(is_so)
    return _is_most([_is_most(peers) for peers in voices.values()])


def _is_most(voices: list[bool]) -> bool:
    return 2 * sum(voices) > len(voices)

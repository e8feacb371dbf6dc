"""The invitation to a peer's swarm, from the addresses that it reports. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shoal_ipc.answers.doctor import Doctor
from shoal_ipc.answers.peer import JoinAddress
from shoal_wire.invite import MAX_ADDRESSES, Invite, InviteError, encode_invite
from shoal_wire.types import Digest

_MAX_PUBLIC: Final = MAX_ADDRESSES // 2  # IPv4 and IPv6, TCP alone, with a spare; a guess
_MAX_PRIVATE: Final = MAX_ADDRESSES // 4  # two networks of one machine; a guess


def chosen(ways: Sequence[JoinAddress]) -> list[JoinAddress]:
    """Return the addresses for an invitation, best first.

    Loopback addresses are included only if no other is known. Bootstraps and relays fill the
    remaining space, first with one address each, since some may be down.
    """
    far = [way for way in ways if way.scope != "loopback"] or list(ways)
    own = [way for way in far if way.via == "self"]
    public = [way for way in own if way.scope == "public"][:_MAX_PUBLIC]
    private = [way for way in own if way.scope != "public"][:_MAX_PRIVATE]
    own = [*public, *private]
    relays = [way for way in far if way.via != "self"]
    first = {_peer_of(way): way for way in reversed(relays)}
    relays.sort(key=lambda way: way is not first[_peer_of(way)])
    picked = [*own, *relays[: MAX_ADDRESSES - len(own)]]
    return [way for way in far if way in picked]


def _peer_of(way: JoinAddress) -> str:
    return way.address.rpartition("/p2p/")[2]


def encoded(answer: Doctor, ways: Sequence[JoinAddress], swarm_key: bytes | None = None) -> str:
    """Return the line with these addresses. Raises InviteError."""
    try:
        swarm = Digest(bytes.fromhex(answer.swarm.digest))
    except ValueError:
        raise InviteError("the peer names no swarm") from None
    return encode_invite(
        Invite(
            swarm=swarm,
            addresses=tuple(way.address for way in ways),
            private=answer.facts.key is not None,
            swarm_key=swarm_key,
        )
    )


def line_of(answer: Doctor) -> str:
    """Return the invitation without a private swarm's key; empty if there is no address."""
    ways = chosen(answer.facts.addresses)
    try:
        return encoded(answer, ways) if ways else ""
    except InviteError:
        return ""


def lacks_of(answer: Doctor) -> tuple[str, ...]:
    """Return why a friend cannot join with the invitation, or not with it alone."""
    ways, facts = chosen(answer.facts.addresses), answer.facts
    if not ways:
        return ()
    lacks = {
        "loopback": "it has only loopback addresses: it works on this machine alone",
        "private": "it has no public address: it works in this network alone",
    }
    found = [lacks[ways[0].scope]] if ways[0].scope in lacks else []
    if facts.key is not None:
        found.append(
            "the swarm is private and the line lacks its key: `shoal invite --with-key` adds it"
        )
    if facts.allowed_peers:
        found.append("the swarm has an allow list: only its peers can join")
    return tuple(found)

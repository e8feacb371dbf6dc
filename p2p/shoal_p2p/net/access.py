"""Reasons why two reachable peers do not connect: the swarm key, or the list of peers. Pure.

On a public connection the first bytes are multistream's header in the clear. A peer of a private
swarm sends bytes that look random: a nonce of 24 bytes, then the encrypted header. So each end can
tell from the other's first bytes which of them lacks the key, and a broken connection is not blamed
on the key.
"""

from __future__ import annotations

from enum import StrEnum

GREETING = b"\x13/multistream/1.0.0\n"
NONCE_BYTES = 24
HELLO_BYTES = NONCE_BYTES + len(GREETING)
"""Bytes that a peer of a private swarm sends before it waits for an answer."""
_MIN_DISTINCT = 16
_HIGH_BITS = range(4, NONCE_BYTES - 3)
_TLS_TYPES, _TLS_MAJOR = range(0x14, 0x19), 3


DUPLICATE_KEY_CAUSE = "a copy of this folder, or of this machine, runs elsewhere with the same key"
"""The most common cause of a ban, in words."""
DUPLICATE_KEY_REMEDY = (
    "two nodes need two keys: stop one, remove its identity.key and node.db, and start it again"
)
"""The remedy for it."""


class AccessDenied(StrEnum):
    """Reason why two peers that can reach each other do not connect."""

    KEY_MISSING = "key_missing"
    """The other peer is in a private swarm; this one has no key."""
    KEY_UNEXPECTED = "key_unexpected"
    """This peer has a key; the other one has none."""
    KEY_DIFFERS = "key_differs"
    NOT_LISTED = "not_listed"
    """The swarm has a list of peers, and one of the two is not on it."""
    BANNED = "banned"
    """The swarm has no list of peers, so the other peer must have banned this one."""

    @property
    def message(self) -> str:
        """The reason, worded for either end."""
        return _MESSAGES[self]

    @property
    def remedy(self) -> str:
        """The remedy, for the node's operator."""
        return _REMEDIES[self]


_MESSAGES = {
    AccessDenied.KEY_MISSING: "the peer is in a private swarm (it encrypts from its first byte), "
    "this node has no swarm key",
    AccessDenied.KEY_UNEXPECTED: "the peer has no swarm key, this node has one",
    AccessDenied.KEY_DIFFERS: "the peer has another swarm key than this node",
    AccessDenied.NOT_LISTED: "the peer closed the connection right after the handshake: its swarm "
    "may have a list of peers without this one, or it has banned this one",
    AccessDenied.BANNED: "the peer has banned this node for a while: it closes the connection "
    "right after the handshake, and its swarm has no list of peers",
}
_REMEDIES = {
    AccessDenied.KEY_MISSING: "to join its swarm, start this node with --swarm-key FILE, a copy of"
    " that swarm's key file",
    AccessDenied.KEY_UNEXPECTED: "start it with --swarm-key FILE, a copy of this node's key file, "
    "or this node without",
    AccessDenied.KEY_DIFFERS: "start both with --swarm-key FILE and a copy of the same key file",
    AccessDenied.NOT_LISTED: "add this node's peer id to --allow-peers where the swarm is started",
    AccessDenied.BANNED: f"it happens where {DUPLICATE_KEY_CAUSE}; {DUPLICATE_KEY_REMEDY}. "
    "Otherwise compare the clock (`shoal doctor`)",
}


def looks_encrypted(first: bytes) -> bool:
    """Return whether a connection's first bytes look like those of a peer in a private swarm.

    Needs at least 24 bytes; with fewer the result is False.

    Other protocols begin with text, with lengths and zeros, or with a TLS record, none of which
    looks like a nonce. One nonce in 2,700 is not recognised, so a peer that has the key does not
    rely on this.
    """
    nonce = first[:NONCE_BYTES]
    if len(nonce) < NONCE_BYTES or first.startswith(GREETING):
        return False
    if nonce[0] in _TLS_TYPES and nonce[1] == _TLS_MAJOR:
        return False
    return len(set(nonce)) >= _MIN_DISTINCT and sum(b >> 7 for b in nonce) in _HIGH_BITS

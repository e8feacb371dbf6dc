"""Reasons why two reachable peers stay apart: the swarm's key, or its list of peers. Pure.

A public peer begins with multistream's header in the clear, one of a private swarm with bytes that
look like chance: 24 of nonce, then the header enciphered. So both ends can tell from the other's
first bytes which of them lacks the key, and nobody blames the key for a connection that only broke.
"""

from __future__ import annotations

from enum import StrEnum

GREETING = b"\x13/multistream/1.0.0\n"
NONCE_BYTES = 24
HELLO_BYTES = NONCE_BYTES + len(GREETING)
"""Bytes that a peer of a private swarm has sent before it waits for an answer."""
_MIN_DISTINCT = 16
_HIGH_BITS = range(4, NONCE_BYTES - 3)
_TLS_TYPES, _TLS_MAJOR = range(0x14, 0x19), 3


TWO_WITH_ONE_KEY = "a copy of this folder, or of this machine, runs elsewhere with the same key"
"""The commonest cause of being cut off, in words."""
OWN_KEY = (
    "two nodes need two keys: stop one, remove its identity.key and node.db, and start it again"
)
"""The remedy."""


class AccessDenied(StrEnum):
    """Why two peers that reach each other do not connect."""

    KEY_MISSING = "key_missing"
    """The other one is of a private swarm, this one has no key."""
    KEY_SUPERFLUOUS = "key_superfluous"
    """This one has a key, the other one has none."""
    KEY_DIFFERS = "key_differs"
    NOT_LISTED = "not_listed"
    """The swarm has a list of peers, with one of the two not on it."""
    CUT_OFF = "cut_off"
    """The swarm has no list: so the other one has banned this one."""

    @property
    def says(self) -> str:
        """The reason in words that fit either end."""
        return _SAYS[self]

    @property
    def do(self) -> str:
        """The remedy, for the node's owner."""
        return _DO[self]


_SAYS = {
    AccessDenied.KEY_MISSING: "the peer is of a private swarm (it enciphers from its first byte), "
    "this node has no swarm key",
    AccessDenied.KEY_SUPERFLUOUS: "the peer has no swarm key, this node has one",
    AccessDenied.KEY_DIFFERS: "the peer has another swarm key than this node",
    AccessDenied.NOT_LISTED: "the peer closed the connection right after the handshake: its swarm "
    "may have a list of peers without this one, or it has banned this one",
    AccessDenied.CUT_OFF: "the peer has cut this node off for a while: it closes the connection "
    "right after the handshake, and its swarm has no list of peers",
}
_DO = {
    AccessDenied.KEY_MISSING: "to be of its swarm, start this node with --swarm-key FILE, a copy of"
    " that swarm's key file",
    AccessDenied.KEY_SUPERFLUOUS: "start it with --swarm-key FILE, a copy of this node's key file, "
    "or this node without",
    AccessDenied.KEY_DIFFERS: "start both with --swarm-key FILE and a copy of the same key file",
    AccessDenied.NOT_LISTED: "have this node's peer id given with --allow-peers where the swarm is "
    "started",
    AccessDenied.CUT_OFF: f"it happens where {TWO_WITH_ONE_KEY}; {OWN_KEY}. Else compare the clock "
    "(`shoal doctor`)",
}


def looks_encrypted(first: bytes) -> bool:
    """Return whether a connection's first bytes are such as a peer of a private swarm sends.

    At least 24 of them are needed; with fewer nothing is said.

    Other protocols begin with text, with lengths and zeros, or with a TLS record; a nonce is like
    none of them. One nonce in 2,700 is not known as one, so who has the key does not ask.
    """
    nonce = first[:NONCE_BYTES]
    if len(nonce) < NONCE_BYTES or first.startswith(GREETING):
        return False
    if nonce[0] in _TLS_TYPES and nonce[1] == _TLS_MAJOR:
        return False
    return len(set(nonce)) >= _MIN_DISTINCT and sum(b >> 7 for b in nonce) in _HIGH_BITS

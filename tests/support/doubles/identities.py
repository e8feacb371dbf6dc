"""Peers' names that no other test has, the same in each run."""

from __future__ import annotations

import itertools

from shoal_p2p.net.identity import Identity, identity_from_seed

_numbers = itertools.count(1)


def fresh_identity() -> Identity:
    """Return an identity that nobody else in this process has."""
    return identity_from_seed(b"testing" + next(_numbers).to_bytes(25, "big"))

"""Peers' names that no other test has, the same in each run."""

from __future__ import annotations

import os
from collections import Counter
from hashlib import sha256

from shoal_p2p.net.identity import Identity, identity_from_seed

_made: Counter[str] = Counter()


def fresh_identity() -> Identity:
    """Return an identity that nobody else in this process has.

    It follows from the test that asks and from how often it asked, not from the tests that this
    process happened to run before: a test that holds for most keys only fails always or never.
    """
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    _made[test] += 1
    return identity_from_seed(sha256(f"{test} {_made[test]}".encode()).digest())

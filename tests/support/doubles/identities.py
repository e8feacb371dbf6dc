"""Peer ids that no other test uses, the same in each run."""

from __future__ import annotations

import os
from collections import Counter
from hashlib import sha256

from shoal_p2p.net.identity import Identity, identity_from_seed

_made: Counter[str] = Counter()


def fresh_identity() -> Identity:
    """Return an identity that is unique in this process.

    It depends on the calling test and on its number of calls, not on the tests that this process
    ran before: a test that fails for some keys only fails always or never.
    """
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    _made[test] += 1
    return identity_from_seed(sha256(f"{test} {_made[test]}".encode()).digest())

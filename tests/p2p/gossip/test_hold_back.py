"""How long a peer is left unread that has sent too much."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing

from p2p.gossip.pubsub import GuardedPubsub


class Debt:
    """Owes almost nothing until 50 ms have passed."""

    def __init__(self) -> None:
        self.looks = 0

    def wait_s(self, now: float) -> float:
        self.looks += 1
        assert self.looks < 100, "time stands still"
        return 1e-18 if now < 0.05 else 0.0

    def is_to_blame(self, _now: float) -> bool:
        return False


async def test_a_debt_of_almost_nothing_is_not_waited_for_without_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    counts: Counter[str] = Counter()
    router = SimpleNamespace(left_unread=lambda _peer, _seconds: None)
    pubsub = cast(Any, SimpleNamespace(counts=counts, router=router))
    await GuardedPubsub._hold_back(pubsub, cast(Any, None), cast(Any, Debt()))
    assert counts["held_back"] <= 6

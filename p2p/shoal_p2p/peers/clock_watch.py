"""Warns the operator when the local clock differs from the peers' clocks.

Batches carry their time of creation, and those far off are refused. A node whose clock is an hour
behind refuses all batches and is refused by all peers, without any other symptom. The peers' clocks
are unverified, so they are only reported, never used.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import trio

from shoal_base.waits import LOOK_S
from shoal_p2p.net.interface import Host
from shoal_p2p.peers.outside import AGAIN_S, ask_each
from shoal_p2p.peers.skew import Skew, skew_of
from shoal_p2p.peers.witnesses import witnesses

log = logging.getLogger(__name__)


class ClockWatch:
    """Asks peers from time to time, and logs when the clock becomes wrong and when it is right
    again."""

    def __init__(self, *, host: Host, rng: random.Random, wall_ms: Callable[[], int]) -> None:
        self._host = host
        self._rng = rng
        self._wall_ms = wall_ms
        self._was_wrong = False

    async def run(self) -> None:
        """Run until cancelled."""
        await trio.sleep(LOOK_S)  # the first peers are connected by then
        while True:
            peers = witnesses(self._host.connections(), self._rng)
            answers = await ask_each(self._host, peers, wall_ms=self._wall_ms)
            skew = skew_of([seen.clock_ahead_ms for seen in answers])
            if skew is not None:
                self._say(skew)
            await trio.sleep(LOOK_S if skew is None else AGAIN_S)

    def _say(self, skew: Skew) -> None:
        if skew.is_wrong:
            log.warning(
                "this machine's clock is %s: %s. Peers refuse batches whose time is far off",
                skew.message(),
                skew.advice(),
            )
        elif self._was_wrong:
            log.warning("this machine's clock agrees with %d of its peers again", skew.num_peers)
        self._was_wrong = skew.is_wrong

"""Gossip of the crowd's nodes, which validate a message at the moment it arrives.

It stands alone so that mypyc can compile it (`benchmarks.compiled`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from shoal_lab.simulation.clock import run_now
from shoal_lab.simulation.gossip import SimulatedGossip
from shoal_p2p.gossip.rpc import Message, Validate
from shoal_wire.types import PeerId
from shoal_wire.verdict import Verdict


class InstantGossip(SimulatedGossip):
    """Validates a message at the moment it arrives, without a task."""

    def _admit(
        self, peer: PeerId, message: Message, done: Callable[[], None] = lambda: None
    ) -> None:
        now = self._network.time()
        for event in self._mesh.admit(peer, message, now):
            if not isinstance(event, Validate):
                self._perform((event,))
                continue
            validator = self._validators.get(message.topics[0])
            if validator is not None:
                pending = validator(message.data, message.author, peer)
                judged: Verdict = run_now(cast(Coroutine[Any, Any, Verdict], pending))
                self.hops[self._hops_of.get(message.id, 1)] += 1
                self._perform(self._mesh.on_verdict(peer, message, judged, now))
        done()

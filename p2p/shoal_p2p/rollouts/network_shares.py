"""Share of each IP network in the external signal that the trainer used in the last hour. Pure.

    a group is leased ─▶ note: its publisher, and that one's network
    a round's outcomes ─▶ add_outcome: the group's signal, in that network's minute

Identities are free and right answers cost nothing, so most of a node's signal may come from one
machine under many publishers: `dominant_network` reports that. All publishers to which this node
was never connected count as one network.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from shoal_base.bounded import MANY, BoundedDict
from shoal_base.waits import HOUR_S, MINUTE_S
from shoal_ipc.messages import GroupOutcome
from shoal_p2p.events import GroupLeased
from shoal_wire.types import GroupId, PeerId

MINUTE_MS: Final = int(1000 * MINUTE_S)
WINDOW_MINUTES: Final = int(HOUR_S / MINUTE_S)
"""Length of the window, in minutes, for networks and the ledger."""
MAX_TRACKED: Final = 256
"""Most publishers, families, networks, and publishers per network that are tracked: those trained
on last."""
_TOO_MUCH: Final = 1.0 / 3.0
"""Share of the external signal above which a network is reported."""
_SEVERAL, _OVER_EVEN = 3, 2.0
"""Minimum networks, and factor over an even share, for a report. At 1.5 honest swarms of three on
one machine were reported: which peer forwards first is chance."""
_MANY_NAMES: Final = 8
"""Publishers of one network above which it is reported, whatever the number of networks."""
_TOO_MUCH_UNMET: Final = 0.1
"""Share of the external signal above which many never-connected publishers are reported: 15 % is
the most that the trainer gives them."""


@dataclass(slots=True, eq=False)
class _Origin:
    """Signal and publishers of one network. Mutable."""

    minutes: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=WINDOW_MINUTES))
    """Minutes of the wall clock, and the signal of each."""
    names: BoundedDict[PeerId, int] = field(default_factory=lambda: BoundedDict(MAX_TRACKED))
    """Publishers, and the minute in which each was last trained on."""
    publisher: PeerId | None = None
    """The publisher of the group trained on last."""

    def add(self, publisher: PeerId, signal: float, minute: int) -> None:
        before = 0.0
        if self.minutes and self.minutes[-1][0] >= minute:
            minute, before = self.minutes.pop()
        self.minutes.append((minute, before + signal))
        self.names[publisher] = minute

    def signal_since(self, minute: int) -> float:
        return math.fsum(signal for at, signal in self.minutes if at >= minute)

    def names_since(self, minute: int) -> int:
        return sum(at >= minute for at in self.names.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkShare:
    """One network's share of the external signal of the last hour."""

    peer_id: PeerId | None
    """One of its publishers."""
    is_met: bool
    """False for publishers to which this node was never connected."""
    share: float
    """Its part of the external signal, 0 to 1."""
    names: int
    """Number of its publishers, at most 256."""
    networks: int
    """Number of networks with any signal."""

    @property
    def is_too_much(self) -> bool:
        """True for over a third of the signal, if it is far over an even share or has many
        publishers.

        For publishers that this node never met, a tenth with many publishers is too much.
        """
        if not self.is_met:
            return self.share > _TOO_MUCH_UNMET and self.names >= _MANY_NAMES
        above_others = self.networks >= _SEVERAL and self.share > _OVER_EVEN / self.networks
        return self.share > _TOO_MUCH and (above_others or self.names >= _MANY_NAMES)


class NetworkShares:
    """Signal by network since the node's start."""

    def __init__(self) -> None:
        self._leased: BoundedDict[GroupId, tuple[str, PeerId]] = BoundedDict(MANY)
        self._networks: BoundedDict[str, _Origin] = BoundedDict(MAX_TRACKED)

    def add_leased(self, leased: GroupLeased) -> None:
        """Record the publisher of a leased group."""
        self._leased[leased.group_id] = (leased.network, leased.publisher)

    def add_outcome(self, one: GroupOutcome, now_ms: int) -> None:
        """Count the signal of an external group of a round; unused groups do not count."""
        found = self._leased.get(one.group_id)
        if found is None or one.skip_reason or not math.isfinite(one.signal) or one.signal <= 0:
            return
        network, publisher = found
        origin = self._networks.use(network, _Origin)
        origin.add(publisher, one.signal, now_ms // MINUTE_MS)
        origin.publisher = publisher

    def dominant_network(self, now_ms: int) -> str:
        """Return a report if one network gives too much of the signal; otherwise an empty text."""
        found = [one for one in self.networks(now_ms) if one.is_too_much]
        if not found:
            return ""
        most = found[0]
        part = f"{most.share:.0%} of the external signal of the last hour came from"
        if not most.is_met:
            return f"{part} {most.names} publishers that this node was never connected to"
        return (
            f"{part} one network of {most.networks}, with {most.names} publishers such as"
            f" {most.peer_id}"
        )

    def networks(self, now_ms: int) -> list[NetworkShare]:
        """Return each network's signal in the last hour, largest first."""
        first = now_ms // MINUTE_MS - WINDOW_MINUTES + 1
        gave = {name: one.signal_since(first) for name, one in self._networks.items()}
        gave = {name: signal for name, signal in gave.items() if signal > 0.0}
        total = math.fsum(gave.values())
        return [
            NetworkShare(
                peer_id=self._networks[name].publisher,
                is_met=bool(name),
                share=gave[name] / total,
                names=self._networks[name].names_since(first),
                networks=len(gave),
            )
            for name in sorted(gave, key=lambda name: -gave[name])
        ]

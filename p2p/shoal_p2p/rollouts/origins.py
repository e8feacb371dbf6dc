"""The networks by which came what the trainer has learnt from others in the last hour. Pure.

    a group is leased ─▶ note: its network, connection and publisher
    a round's outcomes ─▶ learnt: the group's signal, in that network's minute

Names are free and right answers cost nothing, so a node may be learning from one machine and not
see it by its publishers: `one_network` says so.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from shoal_base.bounded import MANY, BoundedDict
from shoal_base.waits import HOUR_S, MINUTE_S
from shoal_ipc.messages import GroupOutcome
from shoal_p2p.buffer.types import BufferEntry
from shoal_wire.types import GroupId, PeerId

MINUTE_MS: Final = int(1000 * MINUTE_S)
WINDOW_MINUTES: Final = int(HOUR_S / MINUTE_S)
"""The latest minutes that are told apart, of networks and of the ledger."""
MAX_TOLD_APART: Final = 256
"""The most publishers, families, networks, and publishers behind each, that are told apart: those
learnt from last."""
_TOO_MUCH: Final = 1.0 / 3.0
"""The share of others' signal above which a network is told of."""
_SEVERAL, _OVER_EVEN = 3, 2.0
"""Least networks, and factor over an even share, for a report. At 1.5 honest swarms of three on one
machine were told of: who is the first to pass something on is chance."""
_MANY_NAMES: Final = 8
"""Publishers behind one network that are told of whatever others there are."""


@dataclass(slots=True, eq=False)
class _Origin:
    """One network's part. Changes in place."""

    minutes: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=WINDOW_MINUTES))
    """Minutes of the wall clock, and the signal of each."""
    names: BoundedDict[PeerId, int] = field(default_factory=lambda: BoundedDict(MAX_TOLD_APART))
    """Publishers, and the minute in which each was learnt from last."""
    connection: str = ""
    """The peer that brought what was learnt last."""

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
    """One network's part of what was learnt from others in the last hour."""

    peer_id: PeerId
    """One that brought it."""
    share: float
    """Its part of others' signal, 0 to 1."""
    names: int
    """Publishers of what it brought; at most 256 are told apart."""
    networks: int
    """Networks that gave any."""

    @property
    def is_too_much(self) -> bool:
        """True if it gives over a third, and above one of so many, or under many names."""
        above_others = self.networks >= _SEVERAL and self.share > _OVER_EVEN / self.networks
        return self.share > _TOO_MUCH and (above_others or self.names >= _MANY_NAMES)


class Origins:
    """The origins of what one node has learnt from others since its start."""

    def __init__(self) -> None:
        self._leased: BoundedDict[GroupId, tuple[str, str, PeerId]] = BoundedDict(MANY)
        self._networks: BoundedDict[str, _Origin] = BoundedDict(MAX_TOLD_APART)

    def note(self, entry: BufferEntry) -> None:
        """Remember whence a group came that a trainer has been given."""
        group = entry.group
        self._leased[group.group_id] = (entry.network, entry.connection, group.publisher)

    def learnt(self, one: GroupOutcome, now_ms: int) -> None:
        """Count what a round has learnt from a group; own ones and unused ones count nothing."""
        found = self._leased.get(one.group_id)
        if found is None or one.why_unused or not math.isfinite(one.signal) or one.signal <= 0:
            return
        network, connection, publisher = found
        origin = self._networks.use(network, _Origin)
        origin.add(publisher, one.signal, now_ms // MINUTE_MS)
        origin.connection = connection

    def one_network(self, now_ms: int) -> str:
        """Say that a network gives more than others beside it should; empty where none does."""
        found = [one for one in self.networks(now_ms) if one.is_too_much]
        if not found:
            return ""
        most = found[0]
        whom = most.peer_id or "a peer that is gone"
        return (
            f"{most.share:.0%} of what was learnt from others in the last hour came by one network"
            f" of {most.networks}, under {most.names} names, from {whom}"
        )

    def networks(self, now_ms: int) -> list[NetworkShare]:
        """Return what came by each in the last hour, the one that gave most first."""
        first = now_ms // MINUTE_MS - WINDOW_MINUTES + 1
        gave = {one: one.signal_since(first) for _, one in self._networks.items()}
        gave = {one: signal for one, signal in gave.items() if signal > 0.0}
        total = math.fsum(gave.values())
        return [
            NetworkShare(
                peer_id=PeerId(one.connection),
                share=gave[one] / total,
                names=one.names_since(first),
                networks=len(gave),
            )
            for one in sorted(gave, key=lambda one: -gave[one])
        ]

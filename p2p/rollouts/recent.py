"""The latest rollouts for `shoal debug rollouts`: bounded, with rewards once they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from p2p.events import Event, NewGroups
from shoal_base.bounded import BoundedDict
from shoal_wire.types import GroupId, PeerId, PublishedGroup

_MAX_RECENT = 512


@dataclass(slots=True)
class RecentGroup:
    """One group with what has been learnt about it."""

    number: int
    """Counts up; `--follow` asks for what comes after one."""
    group: PublishedGroup
    received_ms: int | None
    """Wall clock when this run of the node took it in."""
    rewards: tuple[float, ...] | None = None


class RecentRollouts:
    """A ring of the latest groups."""

    def __init__(self, capacity: int = _MAX_RECENT) -> None:
        self._groups: BoundedDict[GroupId, RecentGroup] = BoundedDict(capacity)
        self._next = 1

    def notice(self, event: Event) -> None:
        """Remember groups that are new here."""
        if isinstance(event, NewGroups):
            for group in event.groups:
                self.add(group, received_ms=event.at_ms)

    def add(self, group: PublishedGroup, *, received_ms: int | None = None) -> None:
        """Remember a group."""
        self._groups[group.group_id] = RecentGroup(
            number=self._next, group=group, received_ms=received_ms
        )
        self._next += 1

    def verified(self, group_id: GroupId, rewards: Sequence[float]) -> None:
        """Note the trainer's rewards."""
        known = self._groups.get(group_id)
        if known is not None:
            known.rewards = tuple(rewards)

    def after(
        self, number: int, *, limit: int, publisher: PeerId | None = None
    ) -> list[RecentGroup]:
        """Return the newest `limit` groups above `number`, oldest of them first."""
        found = [
            recent
            for recent in self._groups.values()
            if recent.number > number and publisher in (None, recent.group.publisher)
        ]
        return found[-limit:] if limit > 0 else []

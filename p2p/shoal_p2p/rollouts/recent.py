"""The latest rollouts for `shoal debug rollouts`, with rewards once they are known. Pure.

Bounded in bytes: long texts are truncated, and the oldest groups are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from shoal_base.bounded import REMEMBERED
from shoal_p2p.events import Event, GroupsStored, GroupVerified, RoundTrained
from shoal_p2p.intake.validation import truncate, weight_of
from shoal_wire.types import GroupId, PeerId, PublishedGroup

_MAX_WHOLE_BYTES = 32 * 1024
"""Larger groups are truncated, so that a few cannot displace all others."""
_MAX_CHARS = _MAX_WHOLE_BYTES // 4
MAX_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class RecentGroup:
    """One group with its rewards and outcome, once known."""

    number: int
    """Increasing number; `--follow` requests groups after it."""
    group: PublishedGroup
    num_bytes: int
    """Its weight in memory."""
    received_ms: int | None
    """Wall clock when this process received it."""
    rewards: tuple[float, ...] | None = None
    used: bool | None = None
    """True if it was trained on; None if unknown."""
    skip_reason: str = ""
    """A `SkipReason` if it was not."""


class RecentRollouts:
    """The latest groups, bounded in number and bytes."""

    def __init__(self, capacity: int = REMEMBERED) -> None:
        self._groups: OrderedDict[GroupId, RecentGroup] = OrderedDict()
        self._capacity = capacity
        self._next = 1
        self.num_bytes = 0

    def on_event(self, event: Event) -> None:
        """Remember groups that are new here, and what the trainer makes of them."""
        match event:
            case GroupsStored():
                for group in event.groups:
                    self.add(group, received_ms=event.at_ms)
            case GroupVerified():
                if (known := self._groups.get(event.group_id)) is not None:
                    known.rewards = event.rewards
            case RoundTrained():
                for one in event.outcomes:
                    if (known := self._groups.get(one.group_id)) is not None:
                        known.used, known.skip_reason = not one.skip_reason, one.skip_reason

    def add(self, group: PublishedGroup, *, received_ms: int | None = None) -> None:
        """Remember a group; one that is known becomes the newest."""
        num_bytes = weight_of(group.group)
        if num_bytes > _MAX_WHOLE_BYTES:
            group = truncate(group, max_chars=_MAX_CHARS)
            num_bytes = weight_of(group.group)
        self._forget(group.group_id)
        self._groups[group.group_id] = RecentGroup(
            number=self._next, group=group, num_bytes=num_bytes, received_ms=received_ms
        )
        self.num_bytes += num_bytes
        self._next += 1
        while len(self._groups) > self._capacity or self.num_bytes > MAX_BYTES:
            self._forget(next(iter(self._groups)))

    def _forget(self, group_id: GroupId) -> None:
        known = self._groups.pop(group_id, None)
        if known is not None:
            self.num_bytes -= known.num_bytes

    def of_id(self, group_id: GroupId) -> list[RecentGroup]:
        """Return the group with an id, as a list of at most one."""
        known = self._groups.get(group_id)
        return [] if known is None else [known]

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

"""Measures which share of an honest node's completions holds what attackers planted. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from shoal_wire.types import Completion, RolloutGroup, Task

Verify = Callable[[Sequence[tuple[Task, Sequence[Completion]]]], list[list[float]]]
"""Groups to the rewards of their completions."""


@dataclass(slots=True)
class SharedGroups:
    """The groups that one node has shared in a round."""

    planted: Sequence[str]
    """The texts that attackers of the swarm plant."""
    _groups: list[RolloutGroup] = field(default_factory=list)

    def hear(self, groups: Sequence[RolloutGroup]) -> None:
        """Remember what was shared until the round's shares are taken."""
        self._groups.extend(groups)

    def take_shares(self, verify: Verify) -> dict[str, float | None]:
        """Return the planted shares of the round, and begin the next.

        `planted` is of all completions, 0 without one; `planted_right` of those that earn
        something, None without one.
        """
        found = list(self._found(verify))
        self._groups.clear()
        right = [holds for holds, reward in found if reward > 0]
        return {
            "planted": sum(holds for holds, _ in found) / len(found) if found else 0.0,
            "planted_right": sum(right) / len(right) if right else None,
        }

    def _found(self, verify: Verify) -> Iterator[tuple[bool, float]]:
        """Yield of every completion whether it holds a planted text, and its reward."""
        rewards = verify([(group.task, group.completions) for group in self._groups])
        for group, earned in zip(self._groups, rewards, strict=True):
            for completion, reward in zip(group.completions, earned, strict=True):
                yield any(phrase in completion.text for phrase in self.planted), reward

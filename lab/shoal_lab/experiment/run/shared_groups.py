"""Measures the share of an honest node's completions that contain planted text. Pure."""

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
    """The texts that the swarm's attackers plant."""
    _groups: list[RolloutGroup] = field(default_factory=list)

    def hear(self, groups: Sequence[RolloutGroup]) -> None:
        """Store the shared groups until the round's shares are computed."""
        self._groups.extend(groups)

    def take_shares(self, verify: Verify) -> dict[str, float | None]:
        """Return the planted shares of the round, and begin the next.

        `planted` is the share of all completions, 0 without any; `planted_right` is the share of
        those with a reward above 0, None without any.
        """
        found = list(self._found(verify))
        self._groups.clear()
        right = [holds for holds, reward in found if reward > 0]
        return {
            "planted": sum(holds for holds, _ in found) / len(found) if found else 0.0,
            "planted_right": sum(right) / len(right) if right else None,
        }

    def _found(self, verify: Verify) -> Iterator[tuple[bool, float]]:
        """Yield for every completion whether it contains a planted text, and its reward."""
        rewards = verify([(group.task, group.completions) for group in self._groups])
        for group, earned in zip(self._groups, rewards, strict=True):
            for completion, reward in zip(group.completions, earned, strict=True):
                yield any(phrase in completion.text for phrase in self.planted), reward

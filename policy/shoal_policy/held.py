"""Access to a policy's weights and its optimiser's state, in one process or several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

from shoal_policy.checkpoint.saving import Snapshot
from shoal_policy.model.loading import Policy
from shoal_policy.rollback import restore


class WeightAccess(Protocol):
    """A trainer's access to all weights at once."""

    def take(self, policy: Policy, optimizer: Any) -> tuple[Policy, Any]:
        """Take over what was loaded; return what is to be trained in its place."""
        ...

    def snapshot(self, policy: Policy, optimizer: Any) -> Snapshot | None:
        """All of both, for a checkpoint; None where they are their own."""
        ...

    def restore(self, policy: Policy, optimizer: Any, good: Policy, good_optimizer: Any) -> None:
        """Give both what good ones have, in place."""
        ...


@dataclass(frozen=True, slots=True)
class Here:
    """Access to weights in this process."""

    def take(self, policy: Policy, optimizer: Any) -> tuple[Policy, Any]:
        """Return both as they are."""
        return policy, optimizer

    def snapshot(self, policy: Policy, optimizer: Any) -> Snapshot | None:
        """Return None: both are their own snapshot."""
        return None

    def restore(self, policy: Policy, optimizer: Any, good: Policy, good_optimizer: Any) -> None:
        """See `WeightAccess`."""
        restore(policy, optimizer, good=good, good_optimizer=good_optimizer)


THIS_PROCESS: Final = Here()


def finite(policy: Policy, snapshot: Snapshot | None) -> bool:
    """Return whether every weight is a finite number."""
    weights = policy.model.parameters() if snapshot is None else snapshot.weights.values()
    return all(bool(torch.isfinite(weight.detach()).all()) for weight in weights)

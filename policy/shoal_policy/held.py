"""Access to a policy's weights and its optimiser's state, in one process or several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from shoal_policy.model.loading import Policy
from shoal_policy.model.reference import load_reference
from shoal_policy.model.sharding import all_finite
from shoal_policy.rollback import restore
from shoal_settings.schema import Settings


class WeightAccess(Protocol):
    """A trainer's access to all weights at once."""

    def take(self, policy: Policy, optimizer: Any) -> tuple[Policy, Any]:
        """Take over what was loaded; return what is to be trained in its place."""
        ...

    def reference(self, settings: Settings, policy: Policy, *, seed: int) -> Policy | None:
        """Return what the KL term measures from; see `model.reference.load_reference`."""
        ...

    def finite(self, policy: Policy) -> bool:
        """Return whether every weight is a finite number."""
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

    def reference(self, settings: Settings, policy: Policy, *, seed: int) -> Policy | None:
        """See `WeightAccess`."""
        return load_reference(settings, policy, seed=seed)

    def finite(self, policy: Policy) -> bool:
        """See `WeightAccess`."""
        return all_finite(policy.model.parameters())

    def restore(self, policy: Policy, optimizer: Any, good: Policy, good_optimizer: Any) -> None:
        """See `WeightAccess`."""
        restore(policy, optimizer, good=good, good_optimizer=good_optimizer)


THIS_PROCESS: Final = Here()

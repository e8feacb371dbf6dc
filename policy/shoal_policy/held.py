"""Access to a policy's weights and its optimiser's state, in one process or several."""

from __future__ import annotations

from typing import Any, Final

from shoal_policy.model.loading import Policy
from shoal_policy.model.reference import load_reference
from shoal_policy.model.sharding import all_finite
from shoal_settings.schema import Settings


class WeightAccess:
    """A trainer's access to all weights at once: to those of this process.

    `shoal_policy.sharded.Leader` is the same where they are dealt out over processes.
    """

    def take(self, policy: Policy, optimizer: Any) -> tuple[Policy, Any]:
        """Take over what was loaded; return what is to be trained in its place."""
        return policy, optimizer

    def reference(self, settings: Settings, policy: Policy, *, seed: int) -> Policy | None:
        """Return what the KL term measures from; see `model.reference.load_reference`."""
        return load_reference(settings, policy, seed=seed)

    def finite(self, policy: Policy) -> bool:
        """Return whether every weight is a finite number."""
        return all_finite(policy.model.parameters())

    def restore(self, policy: Policy, optimizer: Any, good: Policy, good_optimizer: Any) -> None:
        """Give both what good ones have, in place: others hold references to them."""
        policy.model.load_state_dict(good.model.state_dict())
        optimizer.load_state_dict(good_optimizer.state_dict())


THIS_PROCESS: Final = WeightAccess()

"""The functions that do a training's heavy work, and access to its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shoal_policy.generation.generator import Generator
from shoal_policy.generation.local import generate
from shoal_policy.model.loading import Policy
from shoal_policy.model.reference import load_reference
from shoal_policy.model.sharding import all_finite
from shoal_policy.rollouts import Answer
from shoal_policy.update.grpo import UpdateStats, update
from shoal_settings.schema import Settings


class Backend:
    """This process's. `shoal_policy.sharded.ShardedBackend` has those of several processes."""

    def __init__(
        self,
        *,
        generate: Callable[..., list[list[Answer]]] = generate,
        update: Callable[..., UpdateStats] = update,
        generator: Callable[[Policy], Generator] | None = None,
    ) -> None:
        """`generate` and `update` have the signatures of `generation.local.generate` and
        `update.grpo.update`; `generator` makes what answers in the policy's place."""
        self.generate, self.update, self.generator = generate, update, generator

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

    def close(self) -> None:
        """Let go of other processes, after the last of the work."""


LOCAL_BACKEND: Final = Backend()

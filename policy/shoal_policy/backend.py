"""The compute backend of a training run: generation, update and access to weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shoal_policy.generation.generator import Generator
from shoal_policy.generation.local import generate
from shoal_policy.model.loading import Policy
from shoal_policy.model.reference import load_reference
from shoal_policy.model.shards import all_finite
from shoal_policy.rollouts import Answer
from shoal_policy.update.grpo import UpdateStats, update
from shoal_settings.schema import Settings


class Backend:
    """Computes in this process. `shoal_policy.sharded.ShardedBackend` uses several."""

    def __init__(
        self,
        *,
        generate: Callable[..., list[list[Answer]]] = generate,
        update: Callable[..., UpdateStats] = update,
        generator: Callable[[Policy], Generator] | None = None,
    ) -> None:
        """`generate` and `update` have the signatures of `generation.local.generate` and
        `update.grpo.update`; `generator` makes a generator that replaces the policy's own."""
        self.generate, self.update, self.generator = generate, update, generator

    def prepare(self, policy: Policy, optimizer: Any) -> tuple[Policy, Any]:
        """Return policy and optimiser prepared for training, like accelerate's `prepare`."""
        return policy, optimizer

    def load_reference(self, settings: Settings, policy: Policy, *, seed: int) -> Policy | None:
        """Return the reference of the KL term; see `model.reference.load_reference`."""
        return load_reference(settings, policy, seed=seed)

    def is_finite(self, policy: Policy) -> bool:
        """Return whether every weight is a finite number."""
        return all_finite(policy.model.parameters())

    def restore(self, policy: Policy, optimizer: Any, good: Policy, good_optimizer: Any) -> None:
        """Copy the state of good ones into policy and optimiser, in place."""
        policy.model.load_state_dict(good.model.state_dict())
        optimizer.load_state_dict(good_optimizer.state_dict())

    def close(self) -> None:
        """Release other processes, at the end of the work."""


LOCAL_BACKEND: Final = Backend()

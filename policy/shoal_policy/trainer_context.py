"""The things that a trainer works with beside its model, and how it is told to stop. No tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shoal_policy.node.link import NodeLink
from shoal_policy.record.phases import ProgressTracker
from shoal_policy.tasks import TaskSource
from shoal_wire.manifest import SwarmRules


class Interrupted(Exception):  # noqa: N818 - an order, not a fault
    """The trainer was told to stop; the round so far has had no effect on the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerContext:
    """One trainer's tasks, node and swarm."""

    tasks: TaskSource
    """Source of questions and rewards."""
    link: NodeLink
    rules: SwarmRules
    should_stop: Callable[[], bool]
    """Returns whether the trainer must end; called between the steps of a round."""
    phases: ProgressTracker = field(default_factory=ProgressTracker)
    """Told what is being done."""
    swarm: str = ""
    """Digest of the swarm, hex: no run of another one is resumed; empty where there is none."""

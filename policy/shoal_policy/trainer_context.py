"""A trainer's access to tasks, node and swarm, and its stop flag. No tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shoal_policy.node.link import NodeLink
from shoal_policy.record.phases import ProgressTracker
from shoal_policy.tasks import TaskSource
from shoal_wire.manifest import SwarmRules


class Interrupted(Exception):  # noqa: N818 - an order, not a fault
    """The trainer was stopped; the current round had no effect on the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerContext:
    """One trainer's tasks, node and swarm."""

    tasks: TaskSource
    """Source of questions and rewards."""
    link: NodeLink
    rules: SwarmRules
    should_stop: Callable[[], bool]
    """Returns whether the trainer must stop; called between the steps of a round."""
    phases: ProgressTracker = field(default_factory=ProgressTracker)
    """Tracks the current phase."""
    swarm: str = ""
    """Hex digest of the swarm; runs of other swarms are not resumed. Empty without one."""

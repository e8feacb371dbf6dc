"""The status that a trainer tells its node; `shoal debug status` and `shoal swarm` show it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal_policy.record.phases import Doing
from shoal_policy.record.progress import RunCounters

_COUNTED = ("reward_start", "reward_sum", "groups_not_shared", "tokens_generated")
"""Fields of `RunCounters` that every node gets."""
_OF_TRAINING = (
    "groups_external_used",
    "groups_local_used",
    "external_drawn",
    "steps_no_signal",
    "batches_quarantined",
    "rollbacks",
    "held_out",
)
"""Fields of `RunCounters` that a node that only generates leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerReport:
    """One word to the node."""

    state: str
    """training, generating, stopped or finished."""
    round: int
    policy_version: int
    model: str
    progress: RunCounters
    last_round: Mapping[str, Any] | None
    """The figures of the latest round, if it has just ended."""
    learning: Mapping[str, Any]
    """Answer to "does it learn?": `shoal_policy.record.learning.LearningMemory.view`."""
    trains: bool = True
    paused: str = ""
    """Why no round is played for now."""
    doing: Doing | None = None
    """The phase that the trainer is in; None once it is in none."""

    def to_json(self) -> str:
        """Return it as the node takes it: one JSON object."""
        counted = (*_COUNTED, *(_OF_TRAINING if self.trains else ()))
        known = {
            "state": self.state,
            "round": self.round,
            "policy_version": self.policy_version,
            "model": self.model,
            "reward_local": self.progress.reward_now,
            **{name: getattr(self.progress, name) for name in counted},
            "last_round": self.last_round,
            "learning": self.learning,
            "paused": self.paused or None,
            "phase": None if self.doing is None else str(self.doing.phase),
            "progress": None if self.doing is None else self.doing.progress(),
        }
        return json.dumps(known)

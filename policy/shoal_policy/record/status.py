"""The status that a trainer tells its node; `shoal debug status` and `shoal swarm` show it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal_policy.record.phases import Doing
from shoal_policy.record.progress import Progress

_OF_TRAINING = frozenset(
    {
        "groups_external_used",
        "groups_local_used",
        "external_drawn",
        "steps_no_signal",
        "batches_quarantined",
        "rollbacks",
        "held_out",
    }
)
"""Keys that a node that only generates leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One word to the node."""

    state: str
    """training, generating, stopped or finished."""
    round: int
    policy_version: int
    model: str
    progress: Progress
    last_round: Mapping[str, Any] | None
    """The figures of the latest round, if it has just ended."""
    learning: Mapping[str, Any]
    """Whether it learns: `shoal_policy.record.learning.Learning.view`."""
    trains: bool = True
    paused: str = ""
    """Why no round is played for now."""
    doing: Doing | None = None
    """The phase that the trainer is in; None once it is in none."""

    def to_json(self) -> str:
        """Return it as the node takes it: one JSON object."""
        progress = self.progress
        known = {
            "state": self.state,
            "round": self.round,
            "policy_version": self.policy_version,
            "model": self.model,
            "reward_local": progress.reward_now,
            "reward_start": progress.reward_start,
            "reward_sum": progress.reward_sum,
            "groups_external_used": progress.groups_external_used,
            "groups_local_used": progress.groups_local_used,
            "external_drawn": progress.external_drawn,
            "groups_not_shared": progress.groups_not_shared,
            "steps_no_signal": progress.steps_no_signal,
            "batches_quarantined": progress.batches_quarantined,
            "rollbacks": progress.rollbacks,
            "tokens_generated": progress.tokens_generated,
            "held_out": progress.held_out,
            "last_round": self.last_round,
            "learning": self.learning,
            "paused": self.paused or None,
            "phase": None if self.doing is None else str(self.doing.phase),
            "progress": None if self.doing is None else self.doing.progress(),
        }
        if not self.trains:
            known = {name: value for name, value in known.items() if name not in _OF_TRAINING}
        return json.dumps(known)

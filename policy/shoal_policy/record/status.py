"""The status that a trainer tells its node; `shoal status` and `shoal swarm` show it."""

from __future__ import annotations

import json
from typing import Any

from shoal_ipc.answers.form import to_json
from shoal_ipc.answers.node import TrainerView
from shoal_policy.record.phases import PhaseProgress
from shoal_policy.record.progress import RunCounters

_COUNTED = ("reward_initial", "groups_not_shared", "tokens_generated")
"""Fields of `RunCounters` that every node gets."""
_OF_TRAINING = ("groups_external_used", "groups_local_used", "external_sampled", "held_out")
"""Fields of `RunCounters` that a node that only generates leaves out."""


def told(
    state: str,
    progress: RunCounters,
    *,
    doing: PhaseProgress | None,
    trains: bool = True,
    **known: Any,
) -> str:
    """Return it as the node takes it: one JSON object, of a `TrainerView`.

    `state` is training, generating, stopped or finished; the phase in `doing` counts in the first
    two. `known` are further fields.
    """
    counted = (*_COUNTED, *(_OF_TRAINING if trains else ()))
    doing = doing if state in ("training", "generating") else None
    view = TrainerView(
        state=state,
        reward_local=progress.reward_now,
        phase=None if doing is None else str(doing.phase),
        progress=None if doing is None else doing.progress,
        **{name: getattr(progress, name) for name in counted},
        **known,
    )
    return json.dumps(to_json(view))

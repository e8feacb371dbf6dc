"""The trainer's status message to its node, shown by `shoal status` and `shoal swarm`."""

from __future__ import annotations

import json
from typing import Any

from shoal_ipc.answers.form import to_json
from shoal_ipc.answers.node import TrainerView
from shoal_policy.record.phases import PhaseProgress
from shoal_policy.record.progress import RunCounters

_COUNTED = ("reward_initial", "groups_not_shared", "tokens_generated")
"""Fields of `RunCounters` in every status."""
_OF_TRAINING = ("groups_external_used", "groups_local_used", "external_sampled")
"""Fields of `RunCounters` that a node that only generates omits."""


def build_status(
    state: str,
    progress: RunCounters,
    *,
    current: PhaseProgress | None,
    trains: bool = True,
    **known: Any,
) -> str:
    """Return the status as the node expects it: one JSON object, a `TrainerView`.

    `state` is training, generating, stopped or finished; the phase in `current` is used only for
    the first two. `known` are further fields.
    """
    counted = (*_COUNTED, *(_OF_TRAINING if trains else ()))
    current = current if state in ("training", "generating") else None
    initial, latest = progress.evaluations() if trains else (None, None)
    view = TrainerView(
        state=state,
        reward_local=progress.reward_now,
        held_out=latest,
        held_out_initial=initial,
        phase=None if current is None else str(current.phase),
        progress=None if current is None else current.progress,
        **{name: getattr(progress, name) for name in counted},
        **known,
    )
    return json.dumps(to_json(view))

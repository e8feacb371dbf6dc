"""`/healthz` and `/readyz`: whether to start a node again, and whether it is at work. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.view.model import ShownPeer

_AT_WORK = ("training", "connected", "generating", "finished", "disabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthy:
    """The answer to a probe."""

    ok: bool
    """200 if so, else 503."""
    says: str


def healthy(shown: ShownPeer) -> Healthy:
    """Return whether the node answers. A fault that no restart repairs is no illness."""
    return Healthy(ok=shown.right.state != "down", says=shown.right.says)


def ready(shown: ShownPeer, trainer_state: str = "") -> Healthy:
    """Return whether the node answers and its trainer is at work.

    `trainer_state` is that of the status view; peers without a trainer have none.
    """
    if not (found := healthy(shown)).ok:
        return found
    if shown.kind == "node" and trainer_state not in _AT_WORK:
        phase = shown.right.phase
        error = phase.last_error if phase is not None else None
        return Healthy(ok=False, says=error or f"trainer {trainer_state or 'not there yet'}")
    return found

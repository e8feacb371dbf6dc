"""What a node has answered: its debug views as they came over its socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Answer = Mapping[str, Any]
"""A debug view, as docs/debug.md has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The latest answer of each view; None where there is none, of a node that is down the last."""

    status: Answer | None = None
    peers: Answer | None = None
    scores: Answer | None = None
    contributions: Answer | None = None
    buffer: Answer | None = None
    doctor: Answer | None = None
    rollouts: Answer | None = None
    ledger: Answer | None = None
    refusals: Answer | None = None
    down_since_unix: float | None = None
    """It does not answer since then; None while it does. 0 where it was never seen."""
    metrics: Sequence[Mapping[str, Any]] = field(default=())
    """Events of ``metrics.jsonl``: its first ones, and its latest."""

"""A run as its `metrics.jsonl` has it: how it began, and how it stands. Blocks.

Of a file of any size its beginning and its end are read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

METRICS_FILE: Final = "metrics.jsonl"
LATEST: Final = 20
"""Rounds in a mean of own rewards, as the trainer's own."""
_HELD_OUT: Final = "held_out/pass@1"
_END_BYTES: Final = 1 << 18
"""Some hundred rounds: the first evaluation stands in those at the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is known of a run from its file."""

    round: int = 0
    """The latest on disk; 0 before the first."""
    reward_own: float | None = None
    """Mean own reward of the latest rounds."""
    held_out: float | None = None
    """Share of held-out questions that passed, in the latest evaluation."""
    held_out_start: float | None = None


def read_run(path: Path) -> Run:
    """Return the run of a file. Raises OSError."""
    with path.open("rb") as file:
        begin = file.read(_END_BYTES)
        size = file.seek(0, 2)
        start = max(len(begin), size - _END_BYTES)
        file.seek(start)
        end = file.read(_END_BYTES)
    # What is cut at either end is no whole line, and is passed over.
    events = [*_events(begin), *_events(end)]
    rounds = [one for one in events if one.get("event") == "round"]
    rewards = [
        one for one in (_number(event, "reward_local") for event in rounds) if one is not None
    ]
    marks = [one for one in (_number(event, _HELD_OUT) for event in events) if one is not None]
    return Run(
        round=int(_number(rounds[-1], "round") or 0) if rounds else 0,
        reward_own=fmean(rewards[-LATEST:]) if rewards else None,
        held_out=marks[-1] if marks else None,
        held_out_start=marks[0] if marks else None,
    )


def _events(data: bytes) -> Iterator[Mapping[str, Any]]:
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def _number(event: Mapping[str, Any], key: str) -> float | None:
    value = event.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]

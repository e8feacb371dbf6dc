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

from shoal.view.measured import is_it_learning, within_of

METRICS_FILE: Final = "metrics.jsonl"
LATEST: Final = 20
"""Rounds in a mean of own rewards, as the trainer's own."""
_HELD_OUT: Final = "held_out/pass@1"
_END_BYTES: Final = 1 << 18
"""Some hundred rounds: the first evaluation stands in those at the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """Facts of a run, read from its file."""

    round: int = 0
    """The latest on disk; 0 before the first."""
    reward_own: float | None = None
    """Mean own reward of the latest rounds."""
    reward_own_within: float | None = None
    """Half of that mean's 95 % interval."""
    held_out: float | None = None
    """Share of held-out questions that passed, in the latest evaluation."""
    held_out_start: float | None = None
    held_out_items: int = 0
    """Questions of the latest evaluation; 0 where that is not known."""
    answer: str = ""
    """Answer to "is it learning?" in a sentence; empty if too few rounds are known."""


def read_run(path: Path) -> RunFile:
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
    evaluated = [event for event in events if _number(event, _HELD_OUT) is not None]
    marks = [one for event in evaluated if (one := _number(event, _HELD_OUT)) is not None]
    items = _number(evaluated[-1], "held_out/num_items") if evaluated else None
    number = int(_number(rounds[-1], "round") or 0) if rounds else 0
    # A file that was cut no longer has the run's beginning.
    is_whole = bool(rounds) and (_number(rounds[0], "round") or 0) <= 1
    return RunFile(
        round=number,
        reward_own=fmean(rewards[-LATEST:]) if rewards else None,
        reward_own_within=within_of(rewards[-LATEST:]),
        held_out=marks[-1] if marks else None,
        held_out_start=marks[0] if marks else None,
        held_out_items=int(items or 0),
        answer=is_it_learning(
            rewards[:LATEST],
            rewards[-LATEST:],
            number,
            held_out=marks,
            num_held_out=int(items or 0),
        )
        if is_whole
        else "",
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

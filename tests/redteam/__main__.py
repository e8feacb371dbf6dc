"""`python -m tests.redteam [wire] SEED…`: plays schedules; of one that fails, the steps it takes.

With `wire` they are skirmishes over real sockets.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.redteam.battle import play
from tests.redteam.schedule import Step, least, schedule_of
from tests.redteam.skirmish import Skirmish, WireStep, play_wire, skirmish_of


def fault_of(run: Callable[[], object]) -> str:
    """Return what does not hold, in a line or so; empty where all does."""
    try:
        run()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return f"{type(error).__name__}: {str(error)[:800]}"
    return ""


def _play_wire(skirmish: Skirmish) -> None:
    with tempfile.TemporaryDirectory(prefix="skirmish-") as folder:
        play_wire(Path(folder) / "node", skirmish)


def _say(seed: int, fault: str) -> bool:
    print(seed, fault or "holds", flush=True)
    return bool(fault)


def main() -> None:
    """Play."""
    is_wire = sys.argv[1:2] == ["wire"]
    for seed in map(int, sys.argv[2 if is_wire else 1 :]):
        for step in _of_wire(seed) if is_wire else _of_schedule(seed):
            print("  ", step)


def _of_schedule(seed: int) -> list[Step]:
    """Return the steps that a schedule's fault takes; none where it has none."""
    whole = schedule_of(seed)

    def fails(steps: Sequence[Step]) -> bool:
        return bool(fault_of(lambda: play(replace(whole, steps=tuple(steps)))))

    return least(whole.steps, fails) if _say(seed, fault_of(lambda: play(whole))) else []


def _of_wire(seed: int) -> list[WireStep]:
    whole = skirmish_of(seed)

    def fails(steps: Sequence[WireStep]) -> bool:
        return bool(fault_of(lambda: _play_wire(replace(whole, steps=tuple(steps)))))

    return least(whole.steps, fails) if _say(seed, fault_of(lambda: _play_wire(whole))) else []


main()

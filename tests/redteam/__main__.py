"""`python -m tests.redteam SEED…`: plays schedules; of one that fails, finds the steps it takes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from tests.redteam.battle import play
from tests.redteam.schedule import Schedule, Step, least, schedule_of


def fault_of(schedule: Schedule) -> str:
    """Return what does not hold, in a line or so; empty where all does."""
    try:
        play(schedule)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return f"{type(error).__name__}: {str(error)[:800]}"
    return ""


def main() -> None:
    """Play."""
    for seed in map(int, sys.argv[1:]):
        schedule = schedule_of(seed)
        fault = fault_of(schedule)
        print(seed, fault or "holds", flush=True)
        if fault:

            def fails(steps: Sequence[Step], whole: Schedule = schedule) -> bool:
                return bool(fault_of(replace(whole, steps=tuple(steps))))

            for step in least(schedule.steps, fails):
                print("  ", step)


main()

"""`python -m tests.redteam [wire] SEED…`: plays schedules, and reduces one that fails to its steps.

With `wire`, they run over real sockets.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.redteam.attack_run import play
from tests.redteam.schedule import minimal_steps, schedule_of
from tests.redteam.wire_attack_run import WireAttackRun, draw_wire_attack, play_wire


def fault_of(run: Callable[[], object]) -> str:
    """Return which check fails, in a line or so; empty if all pass."""
    try:
        run()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return f"{type(error).__name__}: {str(error)[:800]}"
    return ""


def _play_wire(attack: WireAttackRun) -> None:
    with tempfile.TemporaryDirectory(prefix="redteam-") as folder:
        play_wire(Path(folder) / "node", attack)


def main() -> None:
    """Play the schedules of the command line."""
    is_wire = sys.argv[1:2] == ["wire"]
    draw, run = (draw_wire_attack, _play_wire) if is_wire else (schedule_of, play)
    for seed in map(int, sys.argv[2 if is_wire else 1 :]):
        for step in _steps_of_fault(seed, draw(seed), run):
            print("  ", step)


def _steps_of_fault(seed: int, whole: Any, run: Callable[[Any], object]) -> list[Any]:
    """Play a schedule; return the minimal steps of its failure, if it fails."""

    def fails(steps: Sequence[Any]) -> bool:
        return bool(fault_of(lambda: run(replace(whole, steps=tuple(steps)))))

    fault = fault_of(lambda: run(whole))
    print(seed, fault or "holds", flush=True)
    return minimal_steps(whole.steps, fails) if fault else []


main()

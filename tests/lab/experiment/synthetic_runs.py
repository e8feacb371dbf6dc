"""Made-up runs, for tests of pure functions."""

from __future__ import annotations

from shoal_lab.experiment.report.results import JobRun


def run(
    arm: str, seed: int, level: float, *, rounds: int = 4, tokens: float = 10.0, nodes: int = 2
) -> JobRun:
    """A run whose reward is `level` in every round, and whose pass@1 climbs to it."""
    return JobRun(
        arm=arm,
        seed=seed,
        rounds=rounds,
        fresh=((level,) * rounds,) * nodes,
        tokens=tuple(tokens * number for number in range(1, rounds + 1)),
        evaluated=(0, rounds // 2, rounds),
        held_out=((0.0, level / 2, level),) * nodes,
    )

"""The families of parametrized tests: those of every preset, except games."""

from __future__ import annotations

from shoal_tasks.families import PRESETS
from shoal_tasks.spec import LOCAL, ROWS_GENERATOR, FamilySpec

ALL_FAMILIES = tuple(
    dict.fromkeys(spec for specs in PRESETS.values() for spec in specs if not spec.is_environment)
)

JUDGED = FamilySpec(
    name="prose",
    generator=ROWS_GENERATOR,
    verifier=LOCAL,
    config={
        "sha256": "0" * 64,
        "rows": 2,
        "held_out": 0,
        "split": "question",
        "reward_names": ["reward"],
        "reward_weights": [1],
        "reward_range": [0, 1],
    },
    reward_paths=("/judge.py",),
)
"""A family that each node scores by its own judge."""

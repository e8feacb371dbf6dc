"""The families that tests go through: every preset's, but for games."""

from __future__ import annotations

from shoal_tasks.families import PRESETS

ALL_FAMILIES = tuple(
    dict.fromkeys(spec for specs in PRESETS.values() for spec in specs if not spec.is_environment)
)

"""`shoal experiment planted`: how far a phrase spreads where answers stand between tags. Pure.

A verifier of tagged answers reads nothing outside the tags. What stands before them is the
reasoning, and nobody can tell it from a word that somebody plants:

    preface     before the tags, in the place of the reasoning
    behind      after the closing tag
    decoy       before the tags another pair of them: a preface that a model finds likely

A quarter of attackers, the defences that could matter, and what each costs where nobody attacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shoal.experiment.plan import Arm
from shoal.experiment.poison.arms import (
    DEFENDED,
    DEFENDED_FLOOR,
    NONE,
    POSITIVE,
    attacked,
    clean,
)
from shoal.experiment.poison.tagged import MODEL, TASK_FILES

SHARE: Final = 0.25
TRIED: Final[Mapping[str, tuple[str, ...]]] = {
    "preface": (NONE, POSITIVE, "bare", "floor", "standing", DEFENDED, DEFENDED_FLOOR),
    "behind": (NONE, "bare", DEFENDED),
    "decoy": (NONE, DEFENDED_FLOOR),
}
"""By attack: the defences tried against it."""
BASE: Final[Mapping[str, Any]] = {
    "model": str(MODEL),
    "tasks": "none",
    "task_file": list(TASK_FILES),
    "max_new_tokens": 16,
}
"""What differs from the regime of `poison`: the tags and the word need room."""


def all_arms(num_honest: int) -> tuple[Arm, ...]:
    """Each attack with the defences tried against it, and each of those without an attack."""
    return (*clean(num_honest, TRIED["preface"]), *_attacked(num_honest, TRIED))


def quick_arms(num_honest: int) -> tuple[Arm, ...]:
    """Each attack with and without the defences."""
    tried = dict.fromkeys(TRIED, (NONE, DEFENDED))
    return (*clean(num_honest, (NONE, DEFENDED)), *_attacked(num_honest, tried))


def _attacked(num_honest: int, tried: Mapping[str, tuple[str, ...]]) -> tuple[Arm, ...]:
    return tuple(
        arm
        for kind, defences in tried.items()
        for arm in attacked(num_honest, SHARE, kind, defences)
    )

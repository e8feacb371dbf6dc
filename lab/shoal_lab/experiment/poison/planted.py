"""`shoal experiment planted`: how far a phrase spreads where answers stand between tags. Pure.

A verifier of tagged answers reads nothing outside the tags. What stands before them is the
reasoning, and nobody can tell it from a word that somebody plants:

    preface     before the tags, in the place of the reasoning
    behind      after the closing tag
    decoy       before the tags another pair of them: a preface that a model finds likely

A quarter of attackers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shoal_lab.experiment.plan import Arm
from shoal_lab.experiment.poison.arms import attacked, clean
from shoal_lab.experiment.poison.tagged import MODEL, TASK_FILES

SHARE: Final = 0.25
KINDS: Final = ("preface", "behind", "decoy")
BASE: Final[Mapping[str, Any]] = {
    "model": str(MODEL),
    "tasks": "none",
    "task_file": list(TASK_FILES),
    "max_new_tokens": 16,
}
"""What differs from the regime of `poison`: the tags and the word need room."""


def all_arms(num_honest: int) -> tuple[Arm, ...]:
    """Each attack, and none."""
    return (
        *clean(num_honest),
        *(arm for kind in KINDS for arm in attacked(num_honest, SHARE, kind)),
    )

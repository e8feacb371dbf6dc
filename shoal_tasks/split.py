"""Splits questions into training, evaluation and unused ones. Pure.

The seed restricts who may sample: seeds below `TRAIN_SEED_MIN` are for evaluations and judges only.
Two seeds may give the same question, and small families have few, so the question's text decides
too:

    digest of the text ─▶ one in eight: held out, whatever the seed
    answer far more frequent than others ─▶ some of its questions: unused, so that no constant
    answer earns much

Every peer derives the same split from the texts alone. A family of rows states which questions are
held out. For an environment the game's seed decides, because games may begin alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shoal_tasks.families import PRESETS
from shoal_tasks.spec import ENVIRONMENT, ROWS_GENERATOR, FamilySpec
from shoal_tasks.types import Split
from shoal_wire.digests import question_digest
from shoal_wire.rules import is_held_out
from shoal_wire.types import Digest

MIN_HELD_OUT: Final = 8
"""Number of different held-out questions that a generated family needs for evaluation."""


_KEPT: Final[Mapping[str, Mapping[str, float]]] = {
    # Words of a page: otherwise 78, 18 and 4 %.
    "letter_counting_easy": {"1": 0.053, "2": 0.23},
    # One year in four is a leap year.
    "calendar_arithmetic": {"No": 1 / 3},
}
"""Fraction of an answer's questions that are used, by preset family; all of them by default."""

_KEPT_BY_DIGEST: Final[Mapping[Digest, Mapping[str, float]]] = {
    spec.digest: _KEPT[spec.name]
    for specs in PRESETS.values()
    for spec in specs
    if spec.name in _KEPT
}


def choose_split(spec: FamilySpec, question: str, answer: str | None) -> Split:
    """Return what a question of reasoning_gym may be used for."""
    digest = question_digest(question)
    kept = _KEPT_BY_DIGEST.get(spec.digest, {}).get(answer or "", 1.0)
    # Bits of the digest that the next test does not use, so both are independent.
    if int.from_bytes(digest[1:5], "big") >= kept * (1 << 32):
        return Split.UNUSED
    return Split.HELD_OUT if is_held_out(digest) else Split.TRAINING


def num_held_out_needed(spec: FamilySpec) -> int:
    """Return the number of different held-out questions that a family needs for evaluation."""
    # Games may all begin alike, so first observations cannot be counted as different.
    return 1 if spec.generator in (ROWS_GENERATOR, ENVIRONMENT) else MIN_HELD_OUT

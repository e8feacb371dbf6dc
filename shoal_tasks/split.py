"""Splits questions into those to train on, those kept for evaluation, and those left out. Pure.

A seed tells who may draw: below `TRAIN_SEED_MIN` only evaluations and judges. Two seeds may give
one question, and small families have few, so the question's text decides as well:

    digest of the text ─▶ one in eight: held out, whatever the seed
    answer far more frequent than the others ─▶ some of its questions: left out, so that no
    constant answers a family

Everybody comes to the same split from the texts alone. A family of rows states which are held out,
and of an environment the seed of the game decides, since games may begin alike.
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
"""Different held-out questions that a generated family needs to be evaluated on."""


_KEPT: Final[Mapping[str, Mapping[str, float]]] = {
    # Words of a page: 78, 18 and 4 % without it.
    "letter_counting_easy": {"1": 0.053, "2": 0.23},
    # One year in four is a leap year.
    "calendar_arithmetic": {"No": 1 / 3},
}
"""Share of an answer's questions that is asked, by family of a preset; others ask all."""

_KEPT_BY_DIGEST: Final[Mapping[Digest, Mapping[str, float]]] = {
    spec.digest: _KEPT[spec.name]
    for specs in PRESETS.values()
    for spec in specs
    if spec.name in _KEPT
}


def part_of(spec: FamilySpec, question: str, answer: str | None) -> Split:
    """Return what a question of the library's generators is for."""
    digest = question_digest(question)
    kept = _KEPT_BY_DIGEST.get(spec.digest, {}).get(answer or "", 1.0)
    # Bits of the digest that the next test does not look at: the two are independent.
    if int.from_bytes(digest[1:5], "big") >= kept * (1 << 32):
        return Split.LEFT_OUT
    return Split.HELD_OUT if is_held_out(digest) else Split.TRAINING


def num_held_out_needed(spec: FamilySpec) -> int:
    """Return how many different held-out questions a family must have to be evaluated on."""
    # A game's first observation says little of which game it is: all may begin alike.
    return 1 if spec.generator in (ROWS_GENERATOR, ENVIRONMENT) else MIN_HELD_OUT

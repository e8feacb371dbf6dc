"""Lessons of the warm start: right answers, and the misconceptions that hide them.

A misconception is a plausible wrong algorithm, such as leaving a number in its old base, or taking
the smaller number for the greatest divisor. It is consistent, so a model can learn it and keep the
right algorithm; random wrong answers would destroy that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from shoal_tasks.families import EASY, training_coordinates
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import Split

if TYPE_CHECKING:
    from shoal_tasks.worker.generate import GeneratedItem, TaskStream

Metadata = Mapping[str, Any]
"""Metadata that reasoning_gym gives with an item's question and answer."""


_WIDER: Final[Mapping[str, Mapping[str, int]]] = {
    "base_conversion_easy": {"max_value": 80},
    "count_bits_easy": {"max_n": 255},
    "gcd_easy": {"max_value": 40},
    "spell_backward_easy": {"max_word_len": 5},
    "letter_counting_easy": {"min_words": 1, "max_words": 3},
    "simple_equations_easy": {"max_value": 10},
}

WIDE: Final = tuple(
    replace(spec, config={**spec.config, **_WIDER.get(spec.name, {})}) for spec in EASY
)
"""The easy families with more questions, under the same names: a model memorises the answers to a
few, and then knows none of the held-out ones."""

_TOO_COMMON: Final = {"letter_counting_easy": "1"}
"""Answer of wide families that is kept one time in `_KEPT_OF_COMMON`."""
_KEPT_OF_COMMON: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One question with its right answer and the wrong ones that misconceptions give."""

    family: str
    question: str
    right: str
    wrong: tuple[str, ...]
    """Likelier first; never empty, never `right`."""


# Chosen to be right by chance as seldom as possible: where they would be, a small model has to
# know both algorithms to avoid it, and its slips make the start denser than intended.


def _base_conversion(meta: Metadata) -> list[str]:
    """The number left as it is; its decimal value; one digit too many."""
    return [meta["source_repr"], str(meta["decimal_value"]), meta["target_repr"] + "0"]


def _count_bits(meta: Metadata) -> list[str]:
    """All binary digits; the number itself; one too many."""
    return [str(len(meta["binary"])), str(meta["number"]), str(meta["solution"] + 1)]


def _gcd(meta: Metadata) -> list[str]:
    """The sum; both numbers run together."""
    first, second = meta["numbers"]
    return [str(first + second), f"{first}{second}"]


def _spell_backward(meta: Metadata) -> list[str]:
    """The word as it is; its first letter moved to the end; the word without its first letter."""
    word = meta["word"]
    return [word, word[1:] + word[0], word[1:]]


def _letter_counting(meta: Metadata) -> list[str]:
    """All letters; all other letters; one too many."""
    word = "".join(meta["span"]).lower()
    found = word.count(meta["target_letter"])
    return [str(len(word)), str(len(word) - found), str(found + 1)]


def _simple_equations(meta: Metadata) -> list[str]:
    """The right-hand side; the same with the other sign."""
    right = meta["equation"].split(" = ")[1]
    return [right, right[1:] if right.startswith("-") else "-" + right]


_MISCONCEPTIONS: Final[Mapping[str, Callable[[Metadata], list[str]]]] = {
    "base_conversion": _base_conversion,
    "count_bits": _count_bits,
    "gcd": _gcd,
    "spell_backward": _spell_backward,
    "letter_counting": _letter_counting,
    "simple_equations": _simple_equations,
}
"""Functions that make wrong answers, by reasoning_gym's generator; some may happen to be right."""


def misconceptions(generator: str, metadata: Metadata, right: str) -> tuple[str, ...]:
    """Return at most two wrong answers, likelier first; at least one."""
    answers = dict.fromkeys(_MISCONCEPTIONS[generator](metadata))
    return tuple(answer for answer in answers if answer != right)[:2]


def draw_lessons(
    per_family: int | Mapping[str, int], seed: int, families: Sequence[FamilySpec] = EASY
) -> list[Lesson]:
    """Sample lessons of every family from the training split; evaluation questions stay unseen.

    Questions are held out by their text alone, so that no question of `WIDE` is an evaluation
    question. Imports reasoning_gym, which the trainer never does: these texts are made here, not
    received.
    """
    from shoal_tasks.worker.generate import TaskStream

    rng = random.Random(seed)
    lessons = []
    for spec in families:
        stream = TaskStream(spec)
        count = per_family if isinstance(per_family, int) else per_family[spec.name]
        common = None if spec in EASY else _TOO_COMMON.get(spec.name)
        for _ in range(count):
            item = training_item(stream, rng)
            while item.answer == common and rng.randrange(_KEPT_OF_COMMON):
                item = training_item(stream, rng)
            right = item.answer or ""
            wrong = misconceptions(spec.generator, item.entry["metadata"], right)
            lessons.append(
                Lesson(family=spec.name, question=item.question, right=right, wrong=wrong)
            )
    return lessons


def training_item(stream: TaskStream, rng: random.Random) -> GeneratedItem:
    """Sample one item of a family from the training split."""
    while True:
        item = stream.item(training_coordinates(rng, stream.spec).seed, 0)
        if item.part is Split.TRAINING:
            return item


def held_out_questions(per_family: int, *, first_seed: int = 0) -> list[Lesson]:
    """Return evaluation questions, which are never trained on; `wrong` is empty."""
    from shoal_tasks.worker.sync import SyncTaskWorker

    with SyncTaskWorker(EASY) as worker:
        found = worker.held_out(per_family, first_seed=first_seed)
        items = worker.items([task for task, _ in found])
    return [
        Lesson(family=task.family, question=item.question, right=item.answer or "", wrong=())
        for (task, _), item in zip(found, items, strict=True)
    ]

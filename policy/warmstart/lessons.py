"""What the warm start teaches: right answers, and the misconceptions that hide them.

A misconception is a wrong algorithm that somebody might follow: to leave a number in its old base,
to take the smaller number for the greatest divisor. It is consistent, so it can be learnt without
destroying the right algorithm beside it; random wrong answers would.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shoal_tasks.families import EASY, SEED_LIMIT, TRAIN_SEED_MIN

Metadata = Mapping[str, Any]
"""What reasoning_gym notes beside an item's question and answer."""


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
"""By reasoning_gym's generator: wrong answers, of which some may happen to be right."""


def misconceptions(generator: str, metadata: Metadata, right: str) -> tuple[str, ...]:
    """Return at most two wrong answers, likelier first; at least one."""
    answers = dict.fromkeys(_MISCONCEPTIONS[generator](metadata))
    return tuple(answer for answer in answers if answer != right)[:2]


def draw_lessons(per_family: int, seed: int) -> list[Lesson]:
    """Draw lessons of every easy family, from training seeds only: evaluation stays unseen.

    Imports reasoning_gym, which the trainer never does: these texts are made here, not received.
    """
    from shoal_tasks.worker.generate import TaskStream

    rng = random.Random(seed)
    lessons = []
    for spec in EASY:
        stream = TaskStream(spec)
        for _ in range(per_family):
            item = stream.item(rng.randrange(TRAIN_SEED_MIN, SEED_LIMIT), 0)
            right = item.answer or ""
            wrong = misconceptions(spec.generator, item.entry["metadata"], right)
            lessons.append(
                Lesson(family=spec.name, question=item.question, right=right, wrong=wrong)
            )
    return lessons


def held_out_questions(per_family: int, *, first_seed: int = 0) -> list[Lesson]:
    """Return questions of the evaluation seeds, which no training ever draws; `wrong` is empty."""
    from shoal_tasks.families import held_out_coordinates
    from shoal_tasks.worker.generate import TaskStream

    streams = {spec.name: TaskStream(spec) for spec in EASY}
    lessons = []
    for task in held_out_coordinates(EASY, per_family, first_seed=first_seed):
        item = streams[task.family].item(task.seed, task.index)
        lessons.append(
            Lesson(family=task.family, question=item.question, right=item.answer or "", wrong=())
        )
    return lessons

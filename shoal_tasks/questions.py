"""The distinct questions of a file, and the ones that are held out. Pure.

    rows ─▶ one group for each distinct question ─▶ training: in the file's order
                                                 └▶ held out: the last ones of the file

Two questions are the same if they differ in case and white space alone, unless the task file says
that case matters. A question is wholly on one side: none that is evaluated is trained on. Draws go
by distinct question, so one that stands in twenty rows is not asked twenty times as often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, Self, TypeVar

BY_QUESTION: Final = "question"
"""The split by questions that are compared without case and white space."""
BY_TEXT: Final = "text"
"""The split by questions that are compared letter by letter."""
SPLITS: Final = (BY_QUESTION, BY_TEXT)

_HELD_OUT_SHARE: Final = 10
"""One distinct question in so many is held out where the task file does not say how many."""

R = TypeVar("R")


def question_key(question: str, split: str = BY_QUESTION) -> str:
    """Return what two texts have in common if they are the same question."""
    return question if split == BY_TEXT else " ".join(question.casefold().split())


def default_held_out(num_questions: int) -> int:
    """Return how many distinct questions are held out where the task file does not say."""
    return num_questions // _HELD_OUT_SHARE


@dataclass(frozen=True, slots=True)
class SplitRows(Generic[R]):
    """The rows of a family by distinct question."""

    training: tuple[tuple[R, ...], ...]
    """Rows of each question that is trained on, in the order of first appearance."""
    held_out: tuple[tuple[R, ...], ...]
    """Rows of each question that is not, in the order of last appearance."""

    @classmethod
    def of(cls, keys: Sequence[str], rows: Sequence[R], num_held_out: int) -> Self:
        """Split rows, `keys` being those of their questions: the last `num_held_out` are held out.

        A question counts as last by its last row: a test set appended to a file is held out as it
        is, also from the rows above that ask one of its questions.
        """
        groups: dict[str, list[R]] = {}
        last: dict[str, int] = {}
        for number, (key, row) in enumerate(zip(keys, rows, strict=True)):
            groups.setdefault(key, []).append(row)
            last[key] = number
        by_last = sorted(groups, key=last.__getitem__)
        kept = by_last[len(by_last) - num_held_out :]
        left_out = set(kept)
        return cls(
            training=tuple(tuple(rows) for key, rows in groups.items() if key not in left_out),
            held_out=tuple(tuple(groups[key]) for key in kept),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedQuestions:
    """The numbers of rows and of distinct questions of a file."""

    num_rows: int
    num_questions: int
    """Distinct ones."""
    num_repeated: int
    """Questions that stand in more than one row."""

    @classmethod
    def of(cls, keys: Sequence[str]) -> Self:
        """Count the rows whose questions have these keys."""
        counts: dict[str, int] = {}
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
        repeated = sum(count > 1 for count in counts.values())
        return cls(num_rows=len(keys), num_questions=len(counts), num_repeated=repeated)

    @property
    def sentence(self) -> str:
        """One line for the user; empty where every row has a question of its own."""
        if not self.num_repeated:
            return ""
        return (
            f"{self.num_rows:,} rows ask {self.num_questions:,} different questions: "
            f"{self.num_repeated:,} of them {'stand' if self.num_repeated > 1 else 'stands'} in "
            "several rows, and each is drawn as often as the others"
        )

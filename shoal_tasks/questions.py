"""The distinct questions of a file, and which of them are held out. Pure.

    rows ─▶ one group for each distinct question ─▶ training: in the file's order
                                                 └▶ held out: the last ones of the file

Two questions are the same if they differ only in case and white space, unless the task file says
that case matters. All rows of a question are on the same side, so no evaluated question is trained
on. Sampling is by distinct question, so one with twenty rows is not sampled twenty times as often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, Self, TypeVar

BY_QUESTION: Final = "question"
"""The split by questions compared without case and white space."""
BY_TEXT: Final = "text"
"""The split by questions compared letter by letter."""
SPLITS: Final = (BY_QUESTION, BY_TEXT)

_HELD_OUT_SHARE: Final = 10
"""Inverse fraction of held-out questions, by default."""

R = TypeVar("R")


def question_key(question: str, split: str = BY_QUESTION) -> str:
    """Return a key that is equal for texts that are the same question."""
    return question if split == BY_TEXT else " ".join(question.casefold().split())


def default_held_out(num_questions: int) -> int:
    """Return the default number of held-out questions."""
    return num_questions // _HELD_OUT_SHARE


@dataclass(frozen=True, slots=True)
class SplitRows(Generic[R]):
    """The rows of a family, grouped by distinct question."""

    training: tuple[tuple[R, ...], ...]
    """Rows of each training question, in the order of first appearance."""
    held_out: tuple[tuple[R, ...], ...]
    """Rows of each held-out question, in the order of last appearance."""

    @classmethod
    def of(cls, keys: Sequence[str], rows: Sequence[R], num_held_out: int) -> Self:
        """Split rows by the keys of their questions: the last `num_held_out` questions are held
        out.

        A question's position is that of its last row, so a test set appended to a file is held out
        completely, including earlier rows with the same questions.
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
    """Number of distinct questions."""
    num_repeated: int
    """Number of questions with more than one row."""

    @classmethod
    def of(cls, keys: Sequence[str]) -> Self:
        """Count the rows with these question keys."""
        counts: dict[str, int] = {}
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
        repeated = sum(count > 1 for count in counts.values())
        return cls(num_rows=len(keys), num_questions=len(counts), num_repeated=repeated)

    @property
    def sentence(self) -> str:
        """One line for the user; empty if every row has its own question."""
        if not self.num_repeated:
            return ""
        return (
            f"{self.num_rows:,} rows ask {self.num_questions:,} different questions: "
            f"{self.num_repeated:,} of them {'occur' if self.num_repeated > 1 else 'occurs'} in "
            "several rows, and each is sampled as often as the others"
        )

"""One own answer that earned nothing, with the reason, to show to a person.

It shows only this node's own text. Questions may come from an untrusted task file, so control
characters are made visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shoal_base.visible import visible
from shoal_tasks.answers import extract_tagged

SHOWN_CHARACTERS = 160
"""Most characters shown of each question, expected answer and answer."""


class ZeroRewardCause(StrEnum):
    """The cause of a zero reward, in words."""

    EMPTY = "it is empty"
    CUT = "it was truncated at the token limit"
    NO_TAGS = "it has no <answer>…</answer>"
    NOT_ALONE = "it contains the expected answer, which has to stand alone"
    WRONG = "it is wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroRewardAnswer:
    """An own answer that earned nothing, with its question."""

    question: str
    expected: str | None
    """None if any valid answer is accepted, or if it is unknown."""
    answer: str
    cut: bool
    """True if it ended at the token limit."""
    tagged: bool
    """True if the verifier reads the answer between ``<answer>`` tags."""

    @property
    def cause(self) -> ZeroRewardCause:
        """Return why it earned nothing."""
        if self.tagged:
            found = extract_tagged(self.answer)
            if found:
                return ZeroRewardCause.WRONG
            if self.cut:
                return ZeroRewardCause.CUT
            return (
                ZeroRewardCause.EMPTY
                if found == "" or not self.answer.strip()
                else ZeroRewardCause.NO_TAGS
            )
        if self.cut:
            return ZeroRewardCause.CUT
        if not self.answer.strip():
            return ZeroRewardCause.EMPTY
        alone = self.expected is None or self.expected not in self.answer
        return ZeroRewardCause.WRONG if alone else ZeroRewardCause.NOT_ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongAnswer:
    """One answer, ready to be shown."""

    cause: ZeroRewardCause
    text: str
    """One line for people, with control characters made visible."""


def pick_example(unrewarded: Sequence[ZeroRewardAnswer]) -> WrongAnswer | None:
    """Return an answer that earned nothing for the most common reason; None if there is none.

    Prefers an answer whose expected answer is known.
    """
    if not unrewarded:
        return None
    [(cause, alike)] = Counter(one.cause for one in unrewarded).most_common(1)
    one = min((one for one in unrewarded if one.cause is cause), key=lambda o: o.expected is None)
    expected = "any valid answer" if one.expected is None else f"“{_shorten(one.expected)}”"
    text = (
        f"asked “{_shorten(one.question)}”, expected {expected}, answered “{_shorten(one.answer)}”"
        f": {cause} ({alike} of {len(unrewarded)} like this)"
    )
    return WrongAnswer(cause=cause, text=text)


def _shorten(text: str) -> str:
    # The task is usually at the end of a question, the instructions at the beginning.
    if len(text) > SHOWN_CHARACTERS:
        text = f"{text[: SHOWN_CHARACTERS // 3]} … {text[-2 * SHOWN_CHARACTERS // 3 :]}"
    return visible(text)

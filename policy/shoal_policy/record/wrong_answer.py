"""One own answer that earned nothing, and why: what a person wants to see of such a run.

It shows this node's own text, never a stranger's; questions may come from a stranger's task file,
so all of it is made visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shoal_base.visible import visible
from shoal_tasks.answers import extract_tagged

SHOWN_CHARACTERS = 160
"""Most characters shown of question, expected answer and answer each."""


class ZeroRewardCause(StrEnum):
    """Why an answer earned nothing, in words."""

    EMPTY = "it is empty"
    CUT = "it was cut at the token limit"
    NO_TAGS = "it has no <answer>…</answer>"
    NOT_ALONE = "the expected answer is in it, but has to stand alone"
    WRONG = "it is wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroRewardAnswer:
    """An own answer that earned nothing, with its question."""

    question: str
    expected: str | None
    """None where any valid answer is accepted, or it is not known."""
    answer: str
    cut: bool
    """It ended at the token limit."""
    tagged: bool
    """The verifier looks for the answer between ``<answer>`` tags."""

    @property
    def why(self) -> ZeroRewardCause:
        """Why it earned nothing."""
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
    """One answer as it is shown."""

    why: ZeroRewardCause
    text: str
    """One line for people, in which no character acts."""


def commonest(unrewarded: Sequence[ZeroRewardAnswer]) -> WrongAnswer | None:
    """Return one of those that earned nothing for the commonest reason; None of none.

    Where there is one whose expected answer is known, it is the first of these.
    """
    if not unrewarded:
        return None
    [(why, alike)] = Counter(one.why for one in unrewarded).most_common(1)
    one = min((one for one in unrewarded if one.why is why), key=lambda o: o.expected is None)
    expected = "any valid answer" if one.expected is None else f"“{_shown(one.expected)}”"
    text = (
        f"asked “{_shown(one.question)}”, expected {expected}, answered “{_shown(one.answer)}”: "
        f"{why} ({alike} of {len(unrewarded)} alike)"
    )
    return WrongAnswer(why=why, text=text)


def _shown(text: str) -> str:
    # What is asked stands at the end of a question, how to answer it at the beginning.
    if len(text) > SHOWN_CHARACTERS:
        text = f"{text[: SHOWN_CHARACTERS // 3]} … {text[-2 * SHOWN_CHARACTERS // 3 :]}"
    return visible(text)

"""Extraction of the answer from a completion, and the reward of a verifier's score. Pure."""

from __future__ import annotations

import math
from typing import Final

from shoal_tasks.spec import AnswerFormat
from shoal_wire.types import FinishReason

MAX_ANSWER_CHARS: Final = 4096
"""A longer answer is wrong and is not scored. `int` alone costs O(n²) on a string of digits."""

FULL_SCORE: Final = 0.999
"""Scores from here on count as correct."""

GARBAGE_SCORE: Final = 0.05
"""reasoning_gym's scorers give up to this score to any text; it counts as 0."""

TRUNCATED_SHARE: Final = 0.5
"""Fraction of its reward that a truncated completion earns. In full, it would not teach to stop."""

_OPEN: Final = "<answer>"
_CLOSE: Final = "</answer>"


def extract_tagged(text: str) -> str | None:
    """Return the text between the last pair of ``<answer>`` tags, stripped; None without a pair.

    Agrees with `reasoning_gym.utils.extract_answer`, whose regular expression is quadratic in
    unclosed tags. This is linear, because the text may come from another peer.
    """
    found: str | None = None
    for piece in text.split(_CLOSE)[:-1]:
        _, opened, inside = piece.partition(_OPEN)
        if opened:
            found = inside.strip()
    return found


def extract_answer(
    answer_format: AnswerFormat, text: str, finish_reason: FinishReason
) -> str | None:
    """Return the answer to score; None if the completion contains none."""
    if answer_format is AnswerFormat.TAGGED:
        answer = extract_tagged(text)
    elif finish_reason is FinishReason.STOP and len(text) <= MAX_ANSWER_CHARS:
        answer = text.strip()
    else:
        answer = None
    return answer if answer and len(answer) <= MAX_ANSWER_CHARS else None


def unscored_spans(text: str, *, tagged: bool) -> tuple[tuple[int, int], ...]:
    """Return the character ranges of a completion that its verifier ignores, in order.

    For a plain answer, that is the white space around it. For a tagged one, it is the text before
    and after the tags, and white space inside them. A text without an answer has none.
    """
    if not tagged:
        return _margins(text, 0, len(text))
    start = text.find(_OPEN)
    end = text.find(_CLOSE, start + len(_OPEN)) if start >= 0 else -1
    if end < 0:
        return ()
    inside = _margins(text, start + len(_OPEN), end)
    around = [(0, start), *inside, (end + len(_CLOSE), len(text))]
    return tuple((first, last) for first, last in around if first < last)


def opens_twice(text: str) -> bool:
    """Return whether a tagged completion begins several answers; only one is read."""
    return text.count(_OPEN) > 1


def _margins(text: str, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return the white space at both ends of ``text[start:end]``."""
    part = text[start:end]
    lead = len(part) - len(part.lstrip())
    if lead == len(part):
        return ((start, end),) if part else ()
    trail = len(part) - len(part.rstrip())
    ranges = ((start, start + lead), (end - trail, end))
    return tuple((first, last) for first, last in ranges if first < last)


def to_reward(
    answer_format: AnswerFormat, score: object, finish_reason: FinishReason = FinishReason.STOP
) -> float:
    """Map a verifier's score to a reward in [0, 1].

    Plain answers are correct or wrong. Tagged ones keep partial scores, as in SAPO section 4 ("1 or
    0, rarely partial"), above the score of arbitrary text, and earn `TRUNCATED_SHARE` of it if the
    completion was truncated. A score that is not a number in [0, 1] counts as 0: some formulas
    exceed 1 on answers that are far off.
    """
    if not isinstance(score, int | float) or not math.isfinite(score) or score > 1.0 + 1e-6:
        return 0.0
    share = 1.0 if finish_reason is FinishReason.STOP else TRUNCATED_SHARE
    if score >= FULL_SCORE:
        return share
    if answer_format is AnswerFormat.PLAIN or score <= GARBAGE_SCORE:
        return 0.0
    return share * float(score)


def python_reward(share: float, finish_reason: FinishReason) -> float:
    """Return the reward of a completion to which the user's function gave `share`, 0 to 1.

    A truncated completion earns `TRUNCATED_SHARE` of it, as in `to_reward`.
    """
    return share if finish_reason is FinishReason.STOP else share * TRUNCATED_SHARE

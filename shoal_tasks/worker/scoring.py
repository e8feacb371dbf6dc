"""Scores one completion against a regenerated item. For the worker process only.

Never evaluates the completion: see `generators` for which scorers were read and which are replaced.
"""

from __future__ import annotations

import decimal

from shoal_tasks.answers import extract_answer, to_reward
from shoal_tasks.scorers.safe_scorers import safe_score
from shoal_tasks.spec import EXACT, MATH_VERIFY, FamilySpec
from shoal_tasks.worker.generate import GeneratedItem
from shoal_wire.types import FinishReason


def score(spec: FamilySpec, item: GeneratedItem, text: str, finish_reason: FinishReason) -> float:
    """The reward of one completion, 0 ≤ reward ≤ 1. Whatever a scorer raises is a reward of 0."""
    answer = extract_answer(spec.answer_format, text, finish_reason)
    if answer is None:
        return 0.0
    try:
        with decimal.localcontext(decimal.Context(prec=28)):
            raw = _raw_score(spec, answer, item)
    except Exception:  # noqa: BLE001  scorers raise all kinds on malformed answers: a wrong answer
        return 0.0
    return to_reward(spec.answer_format, raw, finish_reason)


def _raw_score(spec: FamilySpec, answer: str, item: GeneratedItem) -> object:
    if spec.verifier == EXACT:
        return float(answer == item.answer)
    if spec.verifier == MATH_VERIFY:
        # Late: an optional package, which the worker has loaded where a family needs it.
        from shoal_tasks.worker.math_answers import is_equal

        return float(is_equal(answer, str(item.answer)))
    return safe_score(spec.generator, answer, item.entry, item.score_answer)

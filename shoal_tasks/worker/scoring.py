"""Scores one completion against a generated item. For the worker process only.

Never evaluates the completion: see `generators` for the reviewed and the replaced scorers.
"""

from __future__ import annotations

import decimal

from shoal_tasks.answers import extract_answer, python_reward, to_reward
from shoal_tasks.scorers.safe_scorers import safe_score
from shoal_tasks.spec import VERIFIER, FamilySpec
from shoal_tasks.worker.generate import GeneratedItem
from shoal_wire.types import FinishReason


def score(spec: FamilySpec, item: GeneratedItem, text: str, finish_reason: FinishReason) -> float:
    """Return the reward of one completion, 0 to 1. It is 0 if a scorer raises.

    Raises:
        UserCodeError: the user's function failed, or the completion's unit tests did.
    """
    if spec.has_python_reward or spec.runs_code:
        return python_reward(item.score_answer(text, item.entry), finish_reason)
    answer = extract_answer(spec.answer_format, text, finish_reason)
    if answer is None:
        return 0.0
    try:
        with decimal.localcontext(decimal.Context(prec=28)):
            if spec.verifier == VERIFIER:
                raw: object = safe_score(spec.generator, answer, item.entry, item.score_answer)
            else:
                raw = item.score_answer(answer, item.entry)
    except Exception:  # noqa: BLE001  scorers raise anything on malformed answers: a wrong answer
        return 0.0
    return to_reward(spec.answer_format, raw, finish_reason)

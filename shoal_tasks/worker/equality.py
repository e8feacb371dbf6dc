"""Comparison of answers with a row's reference answer. For the worker process only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from shoal_tasks.answers import extract_answer
from shoal_tasks.errors import FamilyError
from shoal_tasks.prompts import answer_text
from shoal_tasks.rows import FIRST_ROWS, TaskRow
from shoal_tasks.spec import EXACT, FamilySpec
from shoal_wire.types import FinishReason

_SHOWN_CHARS: Final = 60


def equality(spec: FamilySpec) -> Callable[[str, Any], float]:
    """Return the function that scores an answer against an item's entry: 1 if equal, else 0."""
    if spec.verifier == EXACT:
        return lambda answer, entry: float(answer == entry["answer"])
    # Imported late: an optional package, loaded before the sandbox only if a family needs it.
    from shoal_tasks.worker.math_answers import is_equal

    return lambda answer, entry: float(is_equal(answer, str(entry["answer"])))


def check_answers(spec: FamilySpec, rows: Sequence[TaskRow]) -> None:
    """Raise `FamilyError` for the first row whose reference answer its verifier rejects.

    No completion could earn a reward on such a row, and nothing would show the cause.
    """
    is_right = equality(spec)
    step = max(1, len(rows) // FIRST_ROWS)  # the same number again, spread over the file
    numbers = sorted({*range(min(FIRST_ROWS, len(rows))), *range(0, len(rows), step)})
    for number in numbers:
        gold = rows[number].answer
        if _is_plain_number(gold) or _accepts(spec, is_right, gold):
            continue
        raise FamilyError(
            f"family {spec.name!r}: its verifier ({spec.verifier}) rejects the reference answer "
            f"{_short(gold)} to {_short(rows[number].question)}"
            + ("" if "####" not in gold else '; answer_after = "####" takes the text after it')
        )


def check_repeated(spec: FamilySpec, questions: Sequence[Sequence[TaskRow]]) -> None:
    """Raise `FamilyError` if rows with the same question have different answers."""
    is_right = equality(spec)
    for rows in [rows for rows in questions if len(rows) > 1][:FIRST_ROWS]:
        for other in rows[1:]:
            try:
                is_equal = is_right(other.answer, {"answer": rows[0].answer}) == 1.0
            except Exception:  # noqa: BLE001  a parser may raise anything on unreadable text
                is_equal = False
            if not is_equal:
                raise FamilyError(
                    f"family {spec.name!r}: {_short(rows[0].question)} occurs in several rows with "
                    f"different answers, {_short(rows[0].answer)} and {_short(other.answer)}: keep "
                    "one of them"
                )


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")


def _accepts(spec: FamilySpec, is_right: Callable[[str, Any], float], gold: str) -> bool:
    text = answer_text(gold, tagged=spec.is_tagged)
    answer = extract_answer(spec.answer_format, text, FinishReason.STOP)
    try:
        return answer is not None and is_right(answer, {"answer": gold}) == 1.0
    except Exception:  # noqa: BLE001  a parser may raise anything on unreadable text
        return False


def _is_plain_number(gold: str) -> bool:
    """Return whether a reference answer is digits only, which every verifier reads."""
    return gold.isascii() and gold.removeprefix("-").isdigit()

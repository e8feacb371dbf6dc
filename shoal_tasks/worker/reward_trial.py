"""The trial of reward functions at the start: its completions, and the message form it finds.

For the worker process only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from shoal_tasks.rows import TaskRow
from shoal_tasks.worker.item_limit import ItemLimit
from shoal_tasks.worker.reward_function import Form, RewardFunction, SingleScoreError
from shoal_tasks.worker.user_code import OverLimitError, RefusedError, UserCodeError, run_limited

_ROWS: Final = 8
"""Number of rows in the trial. A guess at how many show most differences between rows."""
_FORMS_OF_AN_ANSWER: Final = (
    "{}",
    "<answer>{}</answer>",
    "\\boxed{{{}}}",
    "<think>\nLet me see.\n</think>\n<answer>\n{}\n</answer>",
    "<reasoning>\nLet me see.\n</reasoning>\n<answer>\n{}\n</answer>\n",
    "$\\boxed{{{}}}$",
    "#### {}",
    "The answer is {}.",
    "<think>Let me see.</think>{}",
)
_OTHERS: Final = ("", "1", "é\n☃ ", "<answer></answer>", "x" * 300)
_MAX_ANSWER_CHARS: Final = 400
_FIRST_CALL_ITEMS: Final = 10
"""Items whose time the first call may use, because libraries import on demand. A guess."""


def build_trial_groups(rows: Sequence[TaskRow]) -> list[tuple[TaskRow, list[str]]]:
    """Return rows with trial completions: the row's own answer in common forms, and others.

    The last group has one completion.
    """
    chosen = rows[:: max(1, len(rows) // _ROWS)][:_ROWS]
    groups = [(row, list(dict.fromkeys(_texts(row, is_first=row is chosen[0])))) for row in chosen]
    first, texts = groups[0]
    return [*groups, (first, texts[:1])]


def _texts(row: TaskRow, *, is_first: bool) -> Iterator[str]:
    answers = list(_answers(row))
    for answer in answers if is_first else answers[:1]:
        for form in _FORMS_OF_AN_ANSWER if is_first else _FORMS_OF_AN_ANSWER[:4]:
            yield form.format(answer)
    yield row.question
    yield from _OTHERS if is_first else _OTHERS[:2]


def _answers(row: TaskRow) -> Iterator[str]:
    """Yield candidates for a row's correct answer: its answer, otherwise its short columns."""
    if row.answer:
        yield row.answer
        return
    yield ""
    for name, value in row.columns.items():
        text = str(value)
        is_short = isinstance(value, str | int | float) and len(text) <= _MAX_ANSWER_CHARS
        if is_short and text != row.question and name != "question":
            yield text


class Trial:
    """Calls of one function in each form of prompts and completions."""

    def __init__(
        self,
        function: RewardFunction,
        groups: Sequence[tuple[TaskRow, list[str]]],
        limit: ItemLimit,
    ) -> None:
        self._function, self._groups, self._limit = function, groups, limit

    def best_form(self) -> Form:
        """Return the form in which the function raises nothing and separates completions best.

        Texts are tried first and preferred. Raises `UserCodeError` if every form fails.
        """
        found: dict[Form, float] = {}
        understood: set[Form] = set()
        failures: dict[Form, UserCodeError] = {}
        is_of_texts = not self._function.mentions_messages
        for form in self._function.forms:
            try:
                known, spread, is_understood = self._spread_of(form)
            except (OverLimitError, RefusedError):
                # Another form would take as long, or fail earlier.
                raise
            except UserCodeError as error:
                failures[form] = error
            else:
                found[known] = spread
                understood |= {known} if is_understood else set()
                if form == Form() and spread > 0 and is_of_texts:
                    break  # it separates texts, and mentions no key of messages
        # Ties go to the first form. A function that never reads a message takes texts.
        best = max(found, key=lambda form: (form in understood, found[form]), default=None)
        tells_apart = best is not None and found[best] > 0
        takes_texts = any(not form.prompts and not form.completions for form in found)
        is_sure = tells_apart or (takes_texts and is_of_texts)
        # A function that mentions no messages, fails for texts and is constant for lists of
        # messages has misread them: for example, it took the length of a list for a text's.
        if best is None or (is_of_texts and not is_sure):
            raise self._cause(failures)
        return best

    def _cause(self, failures: Mapping[Form, UserCodeError]) -> UserCodeError:
        """Return the failure in the form that the function was written for."""
        wanted = self._function.mentions_messages
        return next(
            (error for form, error in failures.items() if form.completions == wanted),
            next(iter(failures.values())),
        )

    def _spread_of(self, form: Form) -> tuple[Form, float, bool]:
        """Return the form, its spread, and whether the function reads all of its messages."""
        read: set[str] = set()
        self._function.read = read
        try:
            spread = self._spread(form)
        except SingleScoreError:
            form = form._replace(is_alone=True)
            spread = self._spread(form)
        finally:
            self._function.read = None
        wanted = {name for name in ("prompts", "completions") if getattr(form, name)}
        return form, spread, wanted <= read

    def _spread(self, form: Form) -> float:
        """Return the difference between the highest and the lowest trial reward."""
        values: list[float] = []
        for number, (row, texts) in enumerate(self._groups):
            items = max(len(texts), 0 if number else _FIRST_CALL_ITEMS)
            of_group = run_limited(
                self._limit, self._function.path, self._function.values, row, texts, form,
                items=items,
            )  # fmt: skip
            values += [value or 0.0 for value in of_group]
        return max(values) - min(values)

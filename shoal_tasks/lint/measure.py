"""Lints a family: scores trial completions with its own task worker, within a time limit."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from shoal_tasks.data_files import read_file
from shoal_tasks.errors import TaskError, WorkerUnavailable
from shoal_tasks.floor import NUM_QUESTIONS, Floor, best_floor
from shoal_tasks.lint.attempts import (
    FORMS,
    Attempt,
    Examples,
    LintRow,
    attempts,
    filled,
    forms_of,
    right_values,
)
from shoal_tasks.lint.games import games_report
from shoal_tasks.lint.report import Finding, Level, Report
from shoal_tasks.lint.verdict import (
    RowScores,
    Scored,
    best_forms,
    findings_of,
    frequent_answer,
    is_recognised,
    means,
    quoted,
    tried_forms,
)
from shoal_tasks.rows import parse_rows
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import GroupRequest, ScoreRequest, ScoreResult, TaskCoordinates
from shoal_tasks.unit_tests.forms import SOLUTION_COLUMN
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import FinishReason

_AT_ONCE: Final = 64
"""Completions per request."""
_GROWTH: Final = 8
"""Growth factor of the requests' size until the time per score is known."""
_KEPT_FORMS: Final = 3
"""Number of forms tried on later rows, of those accepted on the first row."""
_CRASHED: Final = "the worker ended over it"
_FEWEST_QUESTIONS: Final = 20
_FLOOR_S: Final = 20.0
_ATTEMPTS_OF_A_FLOOR: Final = 17
_NEAR: Final = 0.9
_SLOW_S: Final = 0.1
"""Scores slower than this are reported: eight completions of eight questions take over 6 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The extent of a lint."""

    seconds: float
    """Wall time for scoring, without the worker's start."""
    rows: int
    """Number of rows, or games, that are tried."""
    has_floor: bool
    """True if unskilled answers are measured over many questions."""


QUICK: Final = Effort(seconds=3.0, rows=4, has_floor=False)
"""The part that every start runs: a few seconds at most, including the worker's start."""
FULL: Final = Effort(seconds=120.0, rows=16, has_floor=True)


def lint(
    spec: FamilySpec,
    examples: Examples,
    effort: Effort,
    *,
    clock: Callable[[], float] = time.monotonic,
    make_worker: Callable[[Sequence[FamilySpec]], SyncTaskWorker] = SyncTaskWorker,
) -> Report:
    """Return a report about a task, by scoring trial completions.

    `clock` returns seconds. A worker that refuses the family is a finding.
    """
    if spec.is_local or spec.is_on_a_server:
        return _skipped_report(spec, effort, make_worker)
    try:
        with make_worker([spec]) as worker:
            if spec.is_environment:
                return games_report(worker, spec, effort.rows, clock() + effort.seconds, clock)
            return _Linter(worker, spec, examples, effort, clock).report()
    except TaskError as error:
        # A machine that is too busy for a worker says nothing about the task.
        level = Level.SKIPPED if isinstance(error, WorkerUnavailable) else Level.REFUSED
        finding = Finding(level=level, check="worker", message=str(error))
        return Report(family=spec.name, findings=(finding,))


def measure_floor(
    worker: SyncTaskWorker,
    spec: FamilySpec,
    *,
    count: int = NUM_QUESTIONS,
    form: Callable[[str], str] | None = None,
) -> Floor:
    """Return the best unskilled answer over `count` training questions.

    `form` converts an answer to a completion; by default, the family's answer format does.
    """
    drawn = worker.draw(random.Random(0), count, families=[spec])
    tasks, questions = [task for task, _ in drawn], [question for _, question in drawn]
    right = [item.answer for item in worker.items(tasks) if item.answer is not None]

    def rewards_of(completions: Sequence[str]) -> list[float]:
        return [
            result.reward
            for result in worker.score(
                [_request(task, text) for task, text in zip(tasks, completions, strict=True)]
            )
        ]

    return best_floor(spec, questions, right, rewards_of, form=form)


def _request(task: TaskCoordinates, text: str) -> ScoreRequest:
    return ScoreRequest(task=task, text=text, finish_reason=FinishReason.STOP)


def _skipped_report(
    spec: FamilySpec, effort: Effort, make_worker: Callable[[Sequence[FamilySpec]], SyncTaskWorker]
) -> Report:
    """Return the report of a family whose scores may cost money."""
    found = []
    if effort.has_floor and spec.is_local:
        try:
            with make_worker([spec]):  # loads the judge's file without calling it
                pass
        except TaskError as error:
            found.append(Finding(level=Level.REFUSED, check="worker", message=str(error)))
    whose, what = (
        ("a judge of each node's own", "grade") if spec.is_local else ("an OpenEnv server", "game")
    )
    why = (
        f"{whose} decides the reward. Each {what} may cost money, so none was requested. Not "
        "tested: whether a right answer earns most, and whether rewards are deterministic"
    )
    found.append(Finding(level=Level.SKIPPED, check="scores", message=why))
    return Report(family=spec.name, findings=tuple(found))


class _Linter:
    """The lint of one family of rows."""

    def __init__(
        self,
        worker: SyncTaskWorker,
        spec: FamilySpec,
        examples: Examples,
        effort: Effort,
        clock: Callable[[], float],
    ) -> None:
        self._worker, self._spec, self._examples = worker, spec, examples
        self._effort, self._clock = effort, clock
        self._deadline = clock() + effort.seconds
        self._seconds, self._num_scores = 0.0, 0

    def report(self) -> Report:
        """Score the trial completions and evaluate the results."""
        data = read_file(Path(self._spec.path))
        rows = parse_rows(data, self._spec.path)
        numbered = {
            (row.question, row.answer): LintRow(
                number=number, question=row.question, answer=row.answer, columns=row.columns
            )
            for number, row in reversed(list(enumerate(rows, start=1)))
        }
        self._columns = frozenset(key for row in rows for key in row.columns)
        named = [row.answer for row in rows if row.answer]
        self._answers = named or [
            values[0] for row in numbered.values() if (values := right_values(row)[0])
        ]
        self._common = [answer for answer, _ in Counter(self._answers).most_common(8)]
        tried: list[RowScores] = []
        is_complete = True
        for task, row in self._chosen(numbered):
            forms = forms_of(self._spec)
            if tried and is_recognised(tried[0]):
                forms = tuple(best_forms(tried[0])[:_KEPT_FORMS]) or forms
            scored = self._score(task, row, forms)
            if scored is not None and not tried and is_recognised(scored):
                # Repeat with wrong completions in the same forms that are accepted.
                kept = tuple(best_forms(scored)[:_KEPT_FORMS])
                faults = tuple(one for one in scored.scored if one.is_fault)
                scored = self._score(task, row, kept) if kept else scored
                if scored is not None:
                    scored = replace(scored, scored=(*scored.scored, *faults))
            if scored is not None and not is_recognised(scored) and len(forms) < len(FORMS):
                scored = self._score(task, row, forms_of(self._spec))
            if scored is None:
                is_complete = False
                break
            tried.append(scored)
        return self._build_report(tried, is_complete=is_complete)

    def _chosen(
        self, numbered: dict[tuple[str, str], LintRow]
    ) -> Iterator[tuple[TaskCoordinates, LintRow]]:
        """Yield training rows with different questions."""
        drawn = self._worker.draw(random.Random(0), 4 * self._effort.rows, families=[self._spec])
        tasks = list({question: task for task, question in drawn}.values())
        found = []
        for task, item in zip(tasks, self._worker.items(tasks), strict=True):
            answer = item.answer or ""
            unnumbered = LintRow(number=0, question=item.question, answer=answer)
            row = numbered.get((item.question, answer), unnumbered)
            if self._spec.runs_code:
                row = replace(row, answer=str(row.columns.get(SOLUTION_COLUMN) or ""))
            found.append((task, row))
        # Rows with a good example of the author's come first.
        found.sort(key=lambda one: not self._examples.filled(one[1], self._columns).good)
        yield from found[: self._effort.rows]

    def _score(self, task: TaskCoordinates, row: LintRow, forms: Sequence[str]) -> RowScores | None:
        """Score a row's trial completions twice. Return None if the time is up first."""
        start = row.number % max(1, len(self._answers))
        others = [*self._answers[start : start + 64], *self._common]
        examples = self._examples.filled(row, self._columns)
        made = attempts(row, others, self._common, examples, forms)
        # The likeliest forms first, so that slow scoring shows early.
        order = {form: number for number, form in enumerate(forms)}
        made.sort(key=lambda one: order.get(one.form, 0))
        found: list[Scored] = []
        size = 1
        if self._spec.is_scored_by_group:
            # One group, after calls that measure the time per completion.
            for probed in (1, _GROWTH):
                before = self._clock()
                results = self._score_twice(task, made[:probed])
                if not all(one.repeats for one in results):
                    return RowScores(row=row, scored=tuple(results))
                each = (self._clock() - before) / probed
                left = self._deadline - self._clock()
                if left <= 0 or (probed > 1 and each * len(made) > left):
                    return None
            size = _AT_ONCE
        while len(found) < len(made):
            before, group = self._clock(), made[len(found) : len(found) + size]
            found += self._score_twice(task, group)
            # From the latest group only: the first scores of a process are slower.
            each = (self._clock() - before) / len(group)
            rest, left = len(made) - len(found), self._deadline - self._clock()
            if rest and (left <= 0 or (size > 1 and each * rest > left)):
                return None
            size = max(1, min(_GROWTH * size, _AT_ONCE, int(left / 2 / max(each, 1e-6))))
        return RowScores(row=row, scored=tuple(found))

    def _score_twice(self, task: TaskCoordinates, group: Sequence[Attempt]) -> list[Scored]:
        """Score a group, then the same group in reverse order."""
        started = self._clock()
        first = self._results(task, group)
        again = self._results(task, group[::-1])[::-1]
        self._seconds += self._clock() - started
        self._num_scores += len(group)
        return [
            Scored(
                attempt=attempt,
                reward=one.reward,
                error=self._error(one),
                timed_out=one.timed_out,
                again=None if one.timed_out or other.timed_out else other.reward,
            )
            for attempt, one, other in zip(group, first, again, strict=True)
        ]

    def _error(self, result: ScoreResult) -> str:
        """Return what is wrong with the reward. In code tasks, errors belong to the completion."""
        ended = "the worker ended over it" if result.crashed else ""
        return ended if self._spec.runs_code else result.error or ended

    def _results(self, task: TaskCoordinates, group: Sequence[Attempt]) -> list[ScoreResult]:
        if self._spec.is_scored_by_group:
            answers = tuple((attempt.text, FinishReason.STOP) for attempt in group)
            (found,) = self._worker.score_groups([GroupRequest(task=task, answers=answers)])
            if not any(one.error or one.timed_out or one.crashed for one in found):
                return found
        # One by one: an error takes the whole group's rewards, and only one completion causes it.
        return self._worker.score([_request(task, attempt.text) for attempt in group])

    def _build_report(self, tried: Sequence[RowScores], *, is_complete: bool) -> Report:
        form, right, wrong = means(tried)
        is_compared = not (self._spec.has_python_reward or self._spec.runs_code)
        found = frequent_answer(self._answers, is_compared=is_compared)
        found += findings_of(tried) if tried else []
        if any(one.level is Level.UNPROVEN for one in found):
            form, right = "", None
        each = self._seconds / self._num_scores / 2 if self._num_scores else None
        if not tried:
            why = f"one score takes {each or 0:.2g} s: the time was up before one row was tried"
            level = Level.UNPROVEN if self._effort.has_floor else Level.SKIPPED
            found.append(Finding(level=level, check="time", message=why))
        elif each is not None and each >= _SLOW_S:
            why = f"one score takes {each:.2g} s, so a round of 64 completions {64 * each:.0f} s"
            found.append(Finding(level=Level.WARNING, check="time", message=why))
        report = Report(
            family=self._spec.name,
            findings=tuple(found),
            form=form,
            forms=tried_forms(tried),
            right=right,
            wrong=wrong,
            num_rows=len(tried),
            num_scores=self._num_scores,
            seconds_per_score=each,
            is_complete=is_complete,
        )
        return self._with_floor(report, tried) if self._effort.has_floor else report

    def _with_floor(self, report: Report, tried: Sequence[RowScores]) -> Report:
        """Add the best unskilled answer over many questions, if time permits."""
        each, right = report.seconds_per_score, report.right
        left = self._deadline - self._clock()
        if not report.is_sound or each is None or not right or self._spec.runs_code:
            return report
        count = min(
            NUM_QUESTIONS, int(min(left, _FLOOR_S) / max(each, 1e-6) / _ATTEMPTS_OF_A_FLOOR)
        )
        if count < _FEWEST_QUESTIONS:
            return report
        forms = best_forms(tried[0])
        write = (lambda answer: filled(forms[0], answer)) if forms else None
        floor = measure_floor(self._worker, self._spec, count=count, form=write)
        named = floor.answer if floor.is_echo else f"{quoted(floor.answer)} to every question"
        why = f"{named} earns {floor.reward:.2f} on average over {count} questions"
        report = replace(report, floor=floor.reward, floor_answer=named)
        if floor.reward < _NEAR * right:
            return report
        is_all = floor.reward >= right - 1e-9
        finding = Finding(
            level=Level.REFUSED if is_all else Level.WARNING,
            check="floor",
            message=f"{why}, a right answer {right:.2f}",
        )
        return replace(report, findings=(*report.findings, finding))

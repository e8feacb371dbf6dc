"""Evaluates the rewards of the trial completions. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_tasks.lint.attempts import (
    RIGHT_KINDS,
    WRONG_KINDS,
    Attempt,
    Kind,
    LintRow,
    right_values,
    shown,
)
from shoal_tasks.lint.report import Finding, Level

_SHOWN_CHARS: Final = 60
_MOST: Final = 0.5
"""Fraction of rows from which on a wrong completion that earns at least as much as the correct one
refuses the task. On fewer rows it is a warning."""
_FREQUENT: Final = 0.9
_NAMED_FORMS: Final = 4
"""Maximum number of forms in one line; the report has all."""
EXAMPLE_HINT: Final = (
    'give an example of a right completion in the task file: good = ["<answer>{answer}'
    "</answer>\"], with {COLUMN} for a column's text"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One completion and its reward."""

    attempt: Attempt
    reward: float
    error: str = ""
    timed_out: bool = False
    again: float | None = None
    """The reward on a second scoring, in another order; None if there was none."""

    @property
    def is_fault(self) -> bool:
        """True if scoring failed, or was not deterministic."""
        return bool(self.error) or self.timed_out or not self.repeats

    @property
    def repeats(self) -> bool:
        """True unless the second scoring gave another reward."""
        return self.again is None or self.again == self.reward


@dataclass(frozen=True, slots=True, kw_only=True)
class RowScores:
    """A row and all its scored completions."""

    row: LintRow
    scored: tuple[Scored, ...]

    def best(self, kinds: Iterable[Kind]) -> Scored | None:
        """Return the completion of these kinds with the highest reward; None if there is none."""
        wanted = set(kinds)
        return max(
            (one for one in self.scored if one.attempt.kind in wanted),
            key=lambda one: one.reward,
            default=None,
        )

    @property
    def right(self) -> Scored | None:
        """The best correct completion; with examples by the author, the worst of those."""
        good = [one for one in self.scored if one.attempt.kind is Kind.GOOD]
        # Every example must earn more than wrong completions, so the worst one counts.
        return min(good, key=lambda one: one.reward) if good else self.best({Kind.RIGHT})


def findings_of(rows: Sequence[RowScores]) -> list[Finding]:
    """Return the findings about a task, from the rewards on some of its rows."""
    failed = _failures(rows) + _repeats(rows)
    if any(one.level is Level.REFUSED for one in failed):
        return failed
    if all(one.right is None for one in rows):
        return [*failed, *_without_right(rows)]
    known = [one for one in rows if one.right is not None]
    return [*failed, *_compared(known)]


def is_recognised(one: RowScores) -> bool:
    """Return whether a row's correct answer earned more than every wrong completion."""
    right, wrong = one.right, one.best(WRONG_KINDS)
    return right is not None and (wrong is None or right.reward > wrong.reward)


def best_forms(one: RowScores) -> list[str]:
    """Return the forms in which a row's correct answer earned most."""
    right = one.best({Kind.RIGHT})
    if right is None:
        return []
    tried = [each for each in one.scored if each.attempt.kind is Kind.RIGHT]
    return list(dict.fromkeys(each.attempt.form for each in tried if each.reward == right.reward))


def means(rows: Sequence[RowScores]) -> tuple[str, float | None, Mapping[str, float]]:
    """Return the correct answer's best form, its mean reward, and that of each wrong kind."""
    rights = [right for one in rows if (right := one.right) is not None]
    forms = Counter(form for one in rows for form in best_forms(one))
    form = shown(forms.most_common(1)[0][0]) if forms and any(r.reward > 0 for r in rights) else ""
    wrong = {}
    for kind in (*WRONG_KINDS, Kind.MANY):
        found = [best.reward for one in rows if (best := one.best({kind})) is not None]
        if found:
            wrong[str(kind)] = statistics.fmean(found)
    return form, statistics.fmean(one.reward for one in rights) if rights else None, wrong


def frequent_answer(answers: Sequence[str], *, is_compared: bool) -> list[Finding]:
    """Return a finding if nearly all rows have the same answer, so that no question is needed.

    `is_compared` is False if a function gives the reward, which may ignore the answer.
    """
    stated = [answer for answer in answers if answer]
    if len(stated) < 2:
        return []
    ((answer, count),) = Counter(stated).most_common(1)
    share = count / len(stated)
    if share == 1 and is_compared:
        why = (
            f"every row has the answer {quoted(answer)}, so a policy learns to give it to every "
            "question; add rows with other answers"
        )
        return [Finding(level=Level.REFUSED, check="frequent-answer", message=why)]
    if share >= _FREQUENT:
        why = f"{share:.0%} of the rows have the answer {quoted(answer)}"
        return [Finding(level=Level.WARNING, check="frequent-answer", message=why)]
    return []


def quoted(text: str) -> str:
    """Return a text in quotes for one line, truncated if it is long."""
    bare = " ".join(text.split())
    return repr(bare if len(bare) <= _SHOWN_CHARS else f"{bare[:_SHOWN_CHARS]}…")


def _failures(rows: Sequence[RowScores]) -> list[Finding]:
    """Return what failed while completions were scored."""
    found = []
    for one in rows:
        slow = [each for each in one.scored if each.timed_out]
        raised = [each for each in one.scored if each.error and not each.timed_out]
        for check, faults, does in (
            ("time", slow, "takes longer than one completion may"),
            ("error", raised, f"fails: {raised[0].error}" if raised else ""),
        ):
            if not faults:
                continue
            rights = [each for each in one.scored if each.attempt.kind in RIGHT_KINDS]
            is_all = bool(rights) and all(each in faults for each in rights)
            is_all = is_all or len(faults) * 2 >= len(one.scored)
            what = f"{_row(one)}scoring {faults[0].attempt.kind}, {_text(faults[0])}, {does}"
            level = Level.REFUSED if is_all else Level.WARNING
            found.append(Finding(level=level, check=check, message=what))
        if found:
            break  # one row is enough
    return found


def _repeats(rows: Sequence[RowScores]) -> list[Finding]:
    for one in rows:
        for each in one.scored:
            if each.again is not None and not each.repeats:
                why = (
                    f"{_row(one)}the score is not deterministic: {each.attempt.kind}, "
                    f"{_text(each)}, earned {each.reward:.4g}, then {each.again:.4g} when the same "
                    "completions were scored in another order"
                )
                return [Finding(level=Level.REFUSED, check="repeats", message=why)]
    return []


def _without_right(rows: Sequence[RowScores]) -> list[Finding]:
    """Return the findings if no row has a correct answer."""
    found = []
    empty = [each.reward for one in rows for each in one.scored if not each.attempt.text]
    if empty and min(empty) >= 1:
        why = "an empty answer earns 1.00, so no answer can earn more"
        found.append(Finding(level=Level.REFUSED, check="empty", message=why))
    rewards = {each.reward for one in rows for each in one.scored}
    paid = (
        f"{min(rewards):.2f}" if len(rewards) == 1 else f"{min(rewards):.2f} to {max(rewards):.2f}"
    )
    why = (
        "the rows have no right answer, so nothing shows that one earns more than a wrong one: "
        f"the {_count(rows)} trial completions earned {paid}; {EXAMPLE_HINT}"
    )
    return [*found, Finding(level=Level.UNPROVEN, check="right", message=why)]


def _compared(rows: Sequence[RowScores]) -> list[Finding]:
    rewards = {each.reward for one in rows for each in one.scored}
    if _is_guess(rows) and not all(map(is_recognised, rows)):
        return _without_right(rows)
    if len(rewards) == 1 and _count(rows) > len(rows):
        why = (
            f"it gives {rewards.pop():.2f} to everything that was tried: {_everything(rows)}"
            f"{_tried_forms(rows)}; if it expects another form, {EXAMPLE_HINT}"
        )
        return [Finding(level=Level.REFUSED, check="constant", message=why)]
    unlike = [one for one in rows if _loses_to(one, Kind.OTHER)]
    if (
        not _has_good(rows)
        and len(unlike) > _MOST * len(rows)
        and all(map(_rewards_equally, unlike))
    ):
        return [Finding(level=Level.REFUSED, check="right", message=_unrecognised(unlike[0]))]
    found: list[Finding] = []
    least = min(each.reward for one in rows for each in one.scored)
    for kind in (*WRONG_KINDS, Kind.MANY):
        lost = [one for one in rows if _loses_to(one, kind)]
        # One finding is enough for completions that earn the minimum.
        if not lost or (found and all(_reward(one, kind) == least for one in lost)):
            continue
        is_most = len(lost) >= _MOST * len(rows) and kind is not Kind.MANY
        level = Level.REFUSED if is_most else Level.WARNING
        found.append(
            Finding(level=level, check=kind.name.lower(), message=_describe_loss(lost, rows, kind))
        )
    return found


def _reward(one: RowScores, kind: Kind) -> float | None:
    best = one.best({kind})
    return None if best is None else best.reward


def _is_guess(rows: Sequence[RowScores]) -> bool:
    """Return whether the correct answers are only guesses from the columns' names."""
    return not _has_good(rows) and all(right_values(one.row)[1] for one in rows)


def _has_good(rows: Sequence[RowScores]) -> bool:
    return any(each.attempt.kind is Kind.GOOD for one in rows for each in one.scored)


def _loses_to(one: RowScores, kind: Kind) -> bool:
    right, wrong = one.right, one.best({kind})
    return right is not None and wrong is not None and wrong.reward >= right.reward


def _rewards_equally(one: RowScores) -> bool:
    right, other = one.right, one.best({Kind.OTHER})
    return right is not None and other is not None and right.reward == other.reward


def _unrecognised(one: RowScores) -> str:
    right = one.best({Kind.RIGHT})
    assert right is not None
    value = right_values(one.row)[0][0]
    return (
        f"{_row(one)}no form of the right answer {quoted(value)} earns more than another row's "
        f"answer: both earn at most {right.reward:.2f}{_tried_forms([one])}; if it expects another "
        f"form, {EXAMPLE_HINT}"
    )


def tried_forms(rows: Sequence[RowScores]) -> tuple[str, ...]:
    """Return the forms in which correct answers were tried."""
    rights = [each for one in rows for each in one.scored if each.attempt.kind is Kind.RIGHT]
    return tuple(dict.fromkeys(shown(each.attempt.form) for each in rights))


def _tried_forms(rows: Sequence[RowScores]) -> str:
    forms = tried_forms(rows)
    if not forms:
        return ""
    more = len(forms) - _NAMED_FORMS
    listed = " | ".join(forms[:_NAMED_FORMS]) + (f" | {more} more" if more > 0 else "")
    return f" (with the answer in these forms: {listed})"


def _describe_loss(lost: Sequence[RowScores], rows: Sequence[RowScores], kind: Kind) -> str:
    def lead(one: RowScores) -> float:
        right, wrong = one.right, one.best({kind})
        assert right is not None and wrong is not None
        return wrong.reward - right.reward

    one = max(lost, key=lead)
    right, wrong = one.right, one.best({kind})
    assert right is not None and wrong is not None
    share = "" if len(rows) == 1 else f"; this holds on {len(lost)} of {len(rows)} rows"
    return (
        f"{_row(one)}{kind}, {_text(wrong)}, earns {wrong.reward:.2f}, but {right.attempt.kind}, "
        f"{_text(right)}, only {right.reward:.2f}{share}"
    )


def _everything(rows: Sequence[RowScores]) -> str:
    kinds = {each.attempt.kind for one in rows for each in one.scored}
    forms = {each.attempt.form for one in rows for each in one.scored
             if each.attempt.kind is Kind.RIGHT}  # fmt: skip
    right = f"the right answer in {len(forms)} form{'' if len(forms) == 1 else 's'}"
    named = [right if kind is Kind.RIGHT else str(kind) for kind in Kind if kind in kinds]
    return ", ".join(named)


def _count(rows: Sequence[RowScores]) -> int:
    return sum(len(one.scored) for one in rows)


def _row(one: RowScores) -> str:
    number = f"row {one.row.number}" if one.row.number else "a row"
    return f"{number}, {quoted(one.row.question)}: "


def _text(one: Scored) -> str:
    return quoted(one.attempt.text)

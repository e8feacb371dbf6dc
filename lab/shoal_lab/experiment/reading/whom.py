"""Who learnt what from whom, when for the first time, and how old it was. Pure but for reading.

Read from the rows that rounds carry (`playing.lessons`): every one is of groups
that their publisher signed and that moved the reader's weights, a fact and no estimate. A *lesson*
is such a group; the *first* of a node in a family is where it found out how to earn there, by
itself or by somebody else.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal_lab.experiment.plan import NOBODY
from shoal_lab.experiment.reading.results import Lesson, Run
from shoal_lab.experiment.reading.sheet import NOTHING, interval_of, percent_of
from shoal_lab.significance import Spread, spread

OLD_SHARE: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One arm, over its seeds."""

    arm: str
    from_others: Spread
    """Share of signal that came from others' groups."""
    first_from_others: Spread
    """Share of first lessons, one a node and family, that were another's."""
    found: float
    """Round of the first lesson in a family that anybody had: median of families and seeds."""
    heard: float
    """The same of each node; infinite where half of them had none."""
    families: Mapping[str, float]
    """Round of a node's first lesson in each family: median over nodes and seeds."""
    age: Spread | None
    """Mean age in rounds of others' groups; None where none was trained on."""
    old: Spread | None
    """The age that 19 of 20 do not exceed, of means by node, round, publisher and family."""
    most: Spread | None
    """Share, by signal, that the publisher who taught most has of all learnt from others."""
    rounds: int
    nodes: int


def courses(runs: Sequence[Run]) -> list[Course]:
    """Sum up each arm, in the order in which they come."""
    families = sorted({one.family for run in runs for one in run.lessons})
    arms = dict.fromkeys(run.arm for run in runs)
    return [_course([run for run in runs if run.arm == arm], families) for arm in arms]


def taught(run: Run) -> list[list[float]]:
    """Return, by reader and then publisher, the signal that was learnt."""
    matrix = [[0.0] * run.of_plan for _ in range(run.of_plan)]
    for one in run.lessons:
        if one.publisher != NOBODY:
            matrix[one.node][one.publisher] += one.signal
    return [[float(f"{value:.6g}") for value in row] for row in matrix]


def to_json(runs: Sequence[Run]) -> dict[str, Any]:
    """Return who learnt how much from whom, by arm and seed; empty where rounds do not say so."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for run in runs:
        found[run.arm][str(run.seed)] = taught(run)
    return {"taught": found} if found else {}


def markdown(found: Sequence[Course]) -> str:
    """Two tables: what came from others, and when a family was known for the first time."""
    heads = "arm", "signal from others", "first lessons from others", "first found", "first lesson"
    rows = [f"| {' | '.join((*heads, 'age', 'old', 'most by one'))} |", "|---" * 8 + "|"]
    rows += map(_row, found)
    names = list(found[0].families)
    rows += ["", f"| first lesson | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for one in found:
        cells = [_round(at, one.rounds) for at in one.families.values()]
        rows.append(f"| {one.arm} | {' | '.join(cells)} |")
    return "\n".join(rows) + f"\n\n{_CAPTION}.\n"


_CAPTION = (
    "a lesson: a group that was trained on; signal: the sum of its |advantage|; first lessons: of "
    "each node in each family; first found: round of the first lesson in a family that any node of "
    "the swarm had, first lesson: the same of each node, medians over families, nodes and seeds "
    "(what was never learnt counts as later); age: rounds between making and training on others' "
    "groups, mean, and what 19 of 20 do not exceed; most by one: share of what was learnt from "
    "others that its greatest teacher gave, beside an even share. ± over seeds, 95 %"
)


def _course(runs: Sequence[Run], families: Sequence[str]) -> Course:
    firsts = [_first(run) for run in runs]
    by_family: dict[str, list[float]] = {family: [] for family in families}
    anywhere = []
    for run, first in zip(runs, firsts, strict=True):
        for family in families:
            at = [_round_of(first.get((node, family))) for node in run.readers]
            by_family[family] += at
            anywhere.append(min(at))
    return Course(
        arm=runs[0].arm,
        from_others=spread([_share(run.lessons, lambda one: not one.is_own) for run in runs]),
        first_from_others=spread([_from_others(first) for first in firsts]),
        found=_median(anywhere),
        heard=_median([at for rounds in by_family.values() for at in rounds]),
        families={family: _median(rounds) for family, rounds in by_family.items()},
        age=_over_seeds(runs, _mean_age),
        old=_over_seeds(runs, _old_age),
        most=_over_seeds(runs, _most),
        rounds=runs[0].rounds,
        nodes=runs[0].of_plan,
    )


def _first(run: Run) -> dict[tuple[int, str], Lesson]:
    """Return each node's first lesson in each family; in one round an own group comes first."""
    found: dict[tuple[int, str], Lesson] = {}
    for one in sorted(run.lessons, key=lambda one: (one.round, not one.is_own)):
        found.setdefault((one.node, one.family), one)
    return found


def _round_of(first: Lesson | None) -> float:
    """Return the round of a first lesson; infinity where there was none."""
    return math.inf if first is None else first.round


def _from_others(first: Mapping[tuple[int, str], Lesson]) -> float:
    return statistics.fmean(not one.is_own for one in first.values()) if first else 0.0


def _share(lessons: Sequence[Lesson], counts: Callable[[Lesson], bool]) -> float:
    whole = math.fsum(one.signal for one in lessons)
    return math.fsum(one.signal for one in lessons if counts(one)) / whole if whole else 0.0


def _of_others(run: Run) -> list[Lesson]:
    return [one for one in run.lessons if not one.is_own]


def _mean_age(run: Run) -> float:
    lessons = _of_others(run)
    return sum(one.age for one in lessons) / sum(one.groups for one in lessons)


def _old_age(run: Run) -> float:
    ages = sorted(one.age / one.groups for one in _of_others(run) for _ in range(one.groups))
    return ages[math.ceil(OLD_SHARE * len(ages)) - 1]


def _most(run: Run) -> float:
    by: dict[int, float] = defaultdict(float)
    for one in _of_others(run):
        by[one.publisher] += one.signal
    whole = sum(by.values())
    return max((by[k] for k in by if k != NOBODY), default=0.0) / whole if whole else 0.0


def _over_seeds(runs: Sequence[Run], measure: Callable[[Run], float]) -> Spread | None:
    values = [measure(run) for run in runs if _of_others(run)]
    return spread(values) if values else None


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.inf


def _row(one: Course) -> str:
    even = f" ({1 / one.nodes:.0%})" if one.most else ""
    cells = (
        one.arm,
        _percent(one.from_others),
        _percent(one.first_from_others),
        _round(one.found, one.rounds),
        _round(one.heard, one.rounds),
        _rounds(one.age),
        _rounds(one.old),
        f"{_percent(one.most)}{even}",
    )
    return f"| {' | '.join(cells)} |"


def _percent(found: Spread | None) -> str:
    return NOTHING if found is None else percent_of(found)


def _rounds(found: Spread | None) -> str:
    return NOTHING if found is None else interval_of(1)(found)


def _round(at: float, rounds: int) -> str:
    return f"> {rounds}" if math.isinf(at) else f"{at:.0f}"

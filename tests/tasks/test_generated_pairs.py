"""Generated data and rewards earn plain Python's reward, or are refused with the cause."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.tasks.generated.pairs import Outcome, Pair, compared, count, make_pair

CHUNK = 100


def outcomes_of(made: Iterable[Pair | Outcome]) -> list[Outcome]:
    made = list(made)
    found = [one for one in made if isinstance(one, Outcome)]
    return [*found, *compared([one for one in made if isinstance(one, Pair)])]


def check(outcomes: list[Outcome], at_least: int) -> None:
    kinds = collections.Counter(outcome.kind for outcome in outcomes)
    print(count(kinds))
    different = [outcome.what for outcome in outcomes if outcome.kind == "DIFFERENT"]
    assert not different, f"{len(different)} of {len(outcomes)}:\n" + "\n".join(different[:20])
    assert kinds.total() >= at_least and kinds["equal"] > kinds["refused"] > at_least // 20


def test_a_hundred_pairs(tmp_path: Path) -> None:
    made = [make_pair(seed, tmp_path, is_sound=seed % 8 != 0) for seed in range(104)]
    # A reward that never ends takes seconds, and a new start of a worker.
    quick = [one for one in made if isinstance(one, Outcome) or "endless" not in one.reward.name]
    check(outcomes_of(quick), 100)


@pytest.mark.slow
@pytest.mark.parametrize("first", [1_000, 2_000, 3_000, 4_000])
def test_four_times_eight_hundred_pairs(first: int, tmp_path: Path) -> None:
    # In this thread: math_verify's own time-outs, in plain Python, are signals.
    chunks = [range(start, start + CHUNK) for start in range(first, first + 800, CHUNK)]
    found = [outcomes_of(make_pair(seed, tmp_path) for seed in seeds) for seeds in chunks]
    check(list(itertools.chain.from_iterable(found)), 800)

"""Lessons summed up: what came from whom, when first, and how old."""

from __future__ import annotations

import math
from dataclasses import replace

from shoal_lab.experiment.reading.results import Lesson, Run
from shoal_lab.experiment.reading.whom import courses, markdown, taught, to_json
from tests.lab.experiment.synthetic_runs import run


def told(arm: str, seed: int, lessons: list[tuple[int, int, int, str, float, int]]) -> Run:
    made = [
        Lesson(
            node=node, round=number, publisher=of, family=family, groups=1, signal=signal, age=age
        )
        for node, number, of, family, signal, age in lessons
    ]
    # Node 2 is no reader: an attacker.
    plain = run(arm, seed, 0.0, rounds=9)
    return replace(plain, of_plan=3, readers=(0, 1), lessons=tuple(made))


SHARED = [
    (0, 2, 0, "gcd", 3.0, 0),
    (1, 4, 0, "gcd", 1.0, 2),
    (1, 4, 2, "gcd", 1.0, 4),
    (1, 5, 1, "sums", 2.0, 0),
    (0, 5, 0, "sums", 1.0, 0),
    (0, 5, 1, "sums", 1.0, 0),  # as soon by itself: not from others
    (0, 6, -1, "sums", 1.0, 0),  # of a name that is no node of the plan
]


def test_an_arm_in_numbers() -> None:
    silo, shared = courses([told("8/0", 1, [(0, 7, 0, "gcd", 1.0, 0)]), told("4/4", 1, SHARED)])
    assert shared.from_others.mean == 0.4
    assert shared.first_from_others.mean == 0.25
    assert (shared.found, shared.heard) == (3.5, 4.5)
    assert shared.families == {"gcd": 3.0, "sums": 5.0}
    assert shared.age is not None and shared.old is not None and shared.most is not None
    assert (shared.age.mean, shared.old.mean, shared.most.mean) == (1.5, 4.0, 0.25)
    assert (silo.age, silo.heard) == (None, math.inf)
    assert silo.families["sums"] == math.inf


def test_the_matrix_is_by_reader_and_then_publisher() -> None:
    assert taught(told("4/4", 1, SHARED)) == [[4.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 0.0, 0.0]]
    assert list(to_json([told("4/4", 7, SHARED)])["taught"]["4/4"]) == ["7"]
    assert to_json([]) == {}


def test_what_nobody_learnt_is_later_than_the_last_round() -> None:
    page = markdown(courses([told("8/0", 1, [(0, 7, 0, "gcd", 1.0, 0)]), told("4/4", 1, SHARED)]))
    assert "| 8/0 | 0% ± – | 0% ± – | > 9 | > 9 | – | – | – |" in page
    assert "| 4/4 | 40% ± – | 25% ± – | 4 | 4 | 1.5 ± – | 4.0 ± – | 25% ± – (33%) |" in page
    assert "| 4/4 | 3 | 5 |" in page


def test_nobody_has_learnt_anything() -> None:
    assert "| 4/4 |" in markdown(courses([told("4/4", 1, [])]))

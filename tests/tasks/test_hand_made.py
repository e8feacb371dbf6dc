"""Rows from people and scripts: what peers would refuse is refused before it is published."""

from __future__ import annotations

import pytest

from shoal_tasks.families import EASY, TRAIN_SEED_MIN, coordinates
from shoal_tasks.hand_made import RowError, read_groups
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import Split
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.digests import question_digest
from shoal_wire.manifest import SwarmRules
from shoal_wire.rules import is_held_out
from shoal_wire.types import Digest, FinishReason, RolloutGroup
from tests.support import factories as make

RULES = SwarmRules(allow_inline_tasks=True)


def _read(*lines: str, rules: SwarmRules = RULES) -> list[RolloutGroup]:
    return read_groups(lines, families=EASY, rules=rules, worker=make.real_worker())


def test_tasks_by_coordinates_and_questions_of_ones_own() -> None:
    at = make.coordinates_at(5)
    by_coordinates, inline = _read(
        f'{{"family": "{at.family}", "seed": {at.seed}, "completions": ["1", "2"]}}',
        "",
        '{"question": "q?", "answer": "a", "completions":'
        ' ["a", {"text": "b", "finish_reason": "length"}]}',
    )
    assert by_coordinates.task.question_digest == question_digest(make.real_question(5))
    assert by_coordinates.task.seed == at.seed
    assert inline.task.inline is not None
    assert inline.task.question_digest == question_digest("q?")
    assert inline.completions[1].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("row", "replied"),
    [
        ("{", "line 2 is not JSON"),
        ("[" * 100_000, "line 2 is not JSON"),
        ("[1]", "line 2 is not a JSON object"),
        ('{"family": "gcd_easy", "seed": 1048577}', "line 2 has no list of completions"),
        ('{"family": "gcd_easy", "seed": 1048577, "completions": ["1"]}', "accepts 2 to 64"),
        ('{"family": "gcd_easy", "seed": 1048577, "completions": ["1", ""]}', "no text"),
        ('{"family": "gcd_easy", "seed": 1048577, "completions": ["1", 2]}', "must be a text"),
        (
            '{"family": "gcd_easy", "seed": 1048577, "completions": ["1", {"text": "2",'
            ' "finish_reason": "x"}]}',
            "stop or length",
        ),
        ('{"family": "gcd_easy", "seed": -1, "completions": ["1", "2"]}', "seed must be"),
        ('{"family": "gcd_easy", "seed": true, "completions": ["1", "2"]}', "seed must be"),
        (
            '{"family": "gcd_easy", "seed": 1048577, "index": 9e9, "completions": ["1", "2"]}',
            "index must",
        ),
        (
            '{"family": "gcd_easy", "seed": 1048575, "completions": ["1", "2"]}',
            "seed 1048575 is reserved for evaluation",
        ),
        ('{"family": "chess", "seed": 1, "completions": ["1", "2"]}', "is not in this swarm"),
        ('{"family": ["x"], "seed": 1, "completions": ["1", "2"]}', "is not in this swarm"),
        ('{"completions": ["1", "2"]}', "needs family and seed"),
        ('{"question": "\\u0000", "answer": "", "completions": ["1", "2"]}', "NUL"),
        ('{"family": "gcd_easy", "seed": 1048577, "completions": ["\\ud800", "2"]}', "surrogate"),
    ],
)
def test_a_bad_row_is_named_by_its_line(row: str, replied: str) -> None:
    with pytest.raises(RowError, match=r"line 2") as refused:
        _read('{"family": "gcd_easy", "seed": 1048577, "completions": ["1", "2"]}', row)
    assert replied in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_swarm_that_takes_no_own_questions_says_so() -> None:
    row = '{"question": "q?", "answer": "a", "completions": ["a", "b"]}'
    with pytest.raises(RowError, match="accepts no inline questions"):
        _read(row, rules=SwarmRules())


def test_questions_kept_for_evaluation_are_refused_by_their_text() -> None:
    tasks = [make.coordinates_at(number) for number in range(200)]
    kept = next(
        task
        for task, part in zip(tasks, make.real_worker().parts(tasks), strict=True)
        if part is Split.HELD_OUT
    )
    texts = (f"What is {number}?" for number in range(100))
    own = next(text for text in texts if is_held_out(Digest(question_digest(text))))
    for row in (
        f'{{"family": "{kept.family}", "seed": {kept.seed}, "completions": ["1", "2"]}}',
        f'{{"question": "{own}", "answer": "a", "completions": ["a", "b"]}}',
    ):
        with pytest.raises(RowError, match=r"line 1: the eighth .* is reserved for evaluation"):
            _read(row)


def test_a_row_without_a_valid_task_is_named() -> None:
    spec = FamilySpec(
        name="divides",
        generator="decimal_arithmetic",
        config={
            "min_num_decimal_places": 0,
            "max_num_decimal_places": 0,
            "min_terms": 6,
            "max_terms": 6,
            "precision": 5,
        },
    )
    seeds = range(TRAIN_SEED_MIN, TRAIN_SEED_MIN + 1000)
    with SyncTaskWorker([spec]) as worker:
        digests = worker.question_digests([coordinates(spec, seed) for seed in seeds])
        seed = seeds[digests.index(Digest(b""))]
        row = '{{"family": "divides", "seed": {}, "completions": ["1", "2"]}}'
        lines = ["", row.format(seed), row.format(seed)]
        with pytest.raises(RowError, match=r"line 2: these coordinates have no question"):
            read_groups(lines, families=[spec], rules=RULES, worker=worker)

"""What happened beside the rounds: at which round, bounded, over restarts."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from shoal_p2p.rollouts.learning_ledger import LearningLedger
from shoal_p2p.rollouts.marks import MAX_ABOUT, MAX_MARKS, Marks
from shoal_wire.types import PeerId

NOW_MS = 1_800_000_000_000
MINUTE = 60_000


def told(marks: Marks) -> list[tuple[str, int, int]]:
    return [(row.kind, row.round, row.count) for row in marks.rows()]


def restarted(ledger: LearningLedger) -> LearningLedger:
    again = LearningLedger(PeerId("me"))
    again.restore(ledger.to_json())
    return again


def test_each_stands_at_the_round_that_was_played_last() -> None:
    ledger = LearningLedger(PeerId("me"))
    marks = ledger.marks
    marks.started(NOW_MS)
    marks.trainer(7, NOW_MS)  # the first of a life comes with the node's own start
    marks.trains("tiny", NOW_MS)
    ledger.take(1, [], now_ms=NOW_MS)
    marks.joined({"ann", "ben"}, NOW_MS)
    ledger.take(2, [], now_ms=NOW_MS)
    marks.left({"ben"}, NOW_MS)
    marks.left((), NOW_MS)
    marks.trainer(7, NOW_MS)  # the same again, after a broken connection
    marks.trainer(8, NOW_MS)
    marks.trains("tiny", NOW_MS)
    marks.trains("big", NOW_MS)
    assert told(marks) == [
        ("started", 0, 1),
        ("joined", 1, 2),
        ("left", 2, 1),
        ("trainer", 2, 1),
        ("model", 2, 1),
    ]
    assert [row.about for row in marks.rows()] == [(), ("ann", "ben"), ("ben",), (), ("big",)]


def test_a_restart_keeps_them_and_the_model_that_was_trained() -> None:
    ledger = LearningLedger(PeerId("me"))
    ledger.marks.started(NOW_MS)
    ledger.marks.trains("tiny", NOW_MS)
    ledger.take(5, [], now_ms=NOW_MS)
    again = restarted(ledger)
    assert again.marks.rows() == ledger.marks.rows()
    again.marks.started(NOW_MS + MINUTE)
    again.marks.trains("big", NOW_MS + MINUTE)
    assert told(again.marks) == [("started", 0, 1), ("started", 5, 1), ("model", 5, 1)]
    before = ledger.changes
    ledger.marks.joined({"ann"}, NOW_MS)
    assert ledger.changes > before  # or nothing would be saved


def test_rounds_that_are_played_again_take_marks_back_and_another_run_begins_anew() -> None:
    ledger = LearningLedger(PeerId("me"))
    ledger.marks.started(NOW_MS)
    for number in range(1, 10):
        ledger.take(number, [], now_ms=NOW_MS)
        ledger.marks.joined({f"p{number}"}, NOW_MS + number * MINUTE)
    ledger.marks.trainer(1, NOW_MS)
    ledger.marks.trainer(2, NOW_MS)
    ledger.take(5, [], now_ms=NOW_MS)  # killed after its checkpoint at 4
    assert [mark[1] for mark in told(ledger.marks)] == [0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 4]
    ledger.marks.started(NOW_MS + MINUTE)
    ledger.marks.joined({"ann"}, NOW_MS + 20 * MINUTE)
    ledger.take(1, [], now_ms=NOW_MS)  # --no-resume
    assert told(ledger.marks) == [("started", 0, 1), ("joined", 0, 1)]


def test_who_comes_and_goes_all_the_time_crowds_out_nothing() -> None:
    """By a generator: 5,000 comings and goings, and every start of the node stays."""
    dice, marks, now_ms = random.Random(20261122), Marks(), NOW_MS
    for number in range(5_000):
        now_ms += dice.choice((1, 1_000, 61_000, 3_600_000))
        marks.reached(2 + number)
        some = {f"p{dice.randrange(9_999)}" for _ in range(dice.randrange(9))}
        dice.choice((marks.joined, marks.left))(some, now_ms)
        if number % 500 == 0:
            marks.started(now_ms)
    rows = marks.rows()
    assert sum(row.kind == "started" for row in rows) == 10
    assert len(rows) == MAX_MARKS + 10
    assert all(len(row.about) <= MAX_ABOUT for row in rows)
    peers = [row for row in rows if row.kind != "started"]
    assert sum(row.count for row in peers) > 15_000  # counted, though not each named
    assert peers[0].round < 500 and peers[-1].round > 4_500  # from the run's start to its end
    marks.trainer(0, now_ms)
    for number in range(1, 1_000):
        marks.trainer(number, now_ms + number * MINUTE)
    assert len(marks.rows()) == 2 * MAX_MARKS


def test_beyond_the_bound_the_nearest_two_are_one() -> None:
    marks = Marks()
    for number in range(MAX_MARKS + 1):
        near = MINUTE if number == 70 else 0
        marks.started(NOW_MS + number * 3 * MINUTE - near)
    rows = marks.rows()
    assert len(rows) == MAX_MARKS
    assert [at for at, row in enumerate(rows) if row.count == 2] == [69]


def test_what_is_alike_within_a_minute_and_a_round_is_one() -> None:
    marks = Marks()
    for late_ms in (0, 1_000, 59_000, 60_000):
        marks.joined({str(late_ms)}, NOW_MS + late_ms)
    assert [row.count for row in marks.rows()] == [3, 1]
    marks.reached(2)
    marks.joined({"later"}, NOW_MS + 60_000)
    assert [row.count for row in marks.rows()] == [3, 1, 1]


@pytest.mark.parametrize(
    "marks",
    [[], 7, {"model": "x"}, {"rows": []}, {"model": "", "rows": [["joined", 1]]},
     {"model": "", "rows": [["joined", "x", 1, 1, []]]}, {"model": "", "rows": [[[], 1, 1, 1, []]]},
     {"model": "", "rows": [["joined", 1e999, 1, 1, []]]}],
)  # fmt: skip
def test_a_damaged_file_is_none(marks: Any) -> None:
    saved = json.loads(LearningLedger(PeerId("me")).to_json())
    ledger = LearningLedger(PeerId("me"))
    with pytest.raises(ValueError, match=r"form|unpack|literal"):
        ledger.restore(json.dumps({**saved, "marks": marks}))
    assert ledger.marks.rows() == ()


def test_files_of_other_versions_are_read() -> None:
    ledger = LearningLedger(PeerId("me"))
    saved = json.loads(ledger.to_json())
    later = {"model": "", "rows": [["dreamt", 3, 1, 1, []], ["left", -3, 1, 2, ["a"] * 9]]}
    ledger.restore(json.dumps({**saved, "marks": later}))
    assert told(ledger.marks) == [("left", 0, 2)]
    del saved["marks"]
    ledger.restore(json.dumps(saved))

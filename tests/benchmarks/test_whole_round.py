"""A round is counted from the end of one to the end of the next, and compared only if equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import whole_round
from benchmarks.whole_round import goals, require_same_work
from benchmarks.whole_round_cases import CASES, Case, Found, RoundCounter, lot
from benchmarks.whole_round_run import Scoring, flags_of
from shoal_policy.__main__ import main
from shoal_policy.rollouts import Question
from shoal_tasks.families import PRESETS
from shoal_tasks.types import TaskCoordinates
from shoal_tasks.wire_tasks import make_task
from shoal_tasks.worker.generate import TaskStream
from tests.support.doubles.clock import SetClock

TINY, LONG, _LARGE = CASES
FOUND = Found(
    rounds=3,
    cpu_ms=10.0,
    tokens=4096.0,
    with_signal=8.0,
    questions_digest="a digest",
    peak_mib=100.0,
)


def play(case: Case, seconds: list[float], question: str = "1 + 1?") -> RoundCounter:
    """Rounds of these CPU seconds; the first has eight tokens an answer, the next nine …"""
    clock = SetClock()
    counter = RoundCounter(case, clock)
    for number, cpu_s in enumerate(seconds):
        clock.now += cpu_s
        counter.end_of_round(
            questions=[question] * case.questions,
            lengths=[8 + number] * case.rows,
            with_signal=number,
        )
    return counter


def test_what_is_before_the_first_round_that_counts_and_after_the_last_is_left_out() -> None:
    case = replace(LONG, skipped=2, rounds=3)
    found = play(case, [50.0, 20.0, 1.0, 2.0, 6.0, 90.0]).found()
    assert (found.rounds, found.cpu_ms) == (3, 3000.0)
    assert found.tokens == case.rows * (10 + 11 + 12) / 3
    assert found.with_signal == (2 + 3 + 4) / 3
    assert found.peak_mib > 1
    assert found.questions_digest == play(case, [0.0] * 5).found().questions_digest
    assert found.questions_digest != play(case, [0.0] * 5, "1 + 2?").found().questions_digest


def test_a_run_that_ends_early_has_found_nothing() -> None:
    with pytest.raises(RuntimeError, match="ended after 3 rounds"):
        play(replace(LONG, skipped=1, rounds=3), [1.0] * 3).found()


@pytest.mark.parametrize(("questions", "answers"), [(7, 64), (8, 63), (64, 8)])
def test_a_round_of_another_size_is_refused(questions: int, answers: int) -> None:
    with pytest.raises(RuntimeError, match="not 8 and 64"):
        RoundCounter(LONG, SetClock()).end_of_round(
            questions=["?"] * questions, lengths=[1] * answers, with_signal=0
        )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equal_work_is_compared(case: Case) -> None:
    near = replace(FOUND, cpu_ms=80.0, tokens=4000.0, with_signal=8 - 0.2 * case.questions)
    require_same_work(case, {"ours": FOUND, "trl": near, "trl_default": FOUND})


@pytest.mark.parametrize(
    ("case", "other", "why"),
    [
        (LONG, replace(FOUND, questions_digest="another"), "trl was asked other questions"),
        (LONG, replace(FOUND, tokens=3800.0), "3800 tokens a round by trl, 4096 by ours"),
        (LONG, replace(FOUND, tokens=4400.0), "4400 tokens"),
        (TINY, replace(FOUND, tokens=3000.0), "3000 tokens"),
        (TINY, replace(FOUND, with_signal=5.9), "5.9 groups a round had signal for trl"),
        (LONG, replace(FOUND, with_signal=0.0), "0 groups"),
    ],
)
def test_other_work_is_refused(case: Case, other: Found, why: str) -> None:
    with pytest.raises(RuntimeError, match=why):
        require_same_work(case, {"ours": FOUND, "trl_default": FOUND, "trl": other})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_our_trainer_takes_the_flags(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*flags_of(case, Path("folder"), "data"), "--print-config"]) == 0
    assert "minibatches" in capsys.readouterr().out


def test_only_trl_at_its_fastest_has_another_allocator() -> None:
    assert whole_round.environment_of("ours") == whole_round.environment_of("trl_default") == {}
    assert set(whole_round.environment_of("trl_64")) == set(whole_round.KEPT_PAGES)


def test_trl_is_given_the_size_that_was_fastest_when_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cost = {"ours": 10.0, "trl_default": 90.0, "trl_8": 50.0, "trl_16": 40.0}
    questions_digest: list[str] = []

    def run(candidate: str, _case: Case, _folder: Path) -> Found:
        questions_digest.append(candidate)
        return replace(FOUND, cpu_ms=cost[candidate])

    monkeypatch.setattr(whole_round, "_run", run)
    found = whole_round._compare(LONG, tmp_path, quick=False)
    assert questions_digest == ["trl_8", "trl_16", *["ours", "trl_default", "trl_16"] * 3]
    assert found["trl_micro_batch"] == 16
    assert (found["trl_over_ours"], found["trl_default_over_ours"]) == (4.0, 9.0)
    assert [goal.met for goal in goals([LONG], {LONG.name: found})] == [False]
    assert goals([LONG], {LONG.name: {"trl_over_ours": 7.0}})[0].met


def question(seed: int) -> tuple[Question, str]:
    """A question of the family of greatest common divisors, with its answer."""
    family = next(one for one in PRESETS["easy"] if one.name == "gcd_easy")
    item = TaskStream(family).item(seed, 0)
    at = TaskCoordinates(family=family.name, config_digest=family.digest, seed=seed, index=0)
    task = make_task(at, item.question, family)
    return Question(task=task, text=item.question, tagged=False), str(item.answer)


def test_trl_is_paid_as_our_trainer_is() -> None:
    (first, answer), (second, other) = question(5), question(6)
    scoring = Scoring(TINY, [first, second], PRESETS["easy"], frozenset([3]))
    step: dict[str, Any] = {
        "completions": [answer, answer, *["wrong"] * 6, *[other] * 8],
        "completion_ids": [[9, 3], [9, 9], *[[8, 8, 3]] * 6, *[[7, 3]] * 8],
        "number": [0] * 8 + [1] * 8,
    }
    # A plain answer that was cut earns nothing.
    assert scoring.rewards(**step, prompts=["?"] * 16) == [1.0, *[0.0] * 7, *[1.0] * 8]
    with pytest.raises(RuntimeError, match="twice in one step"):
        scoring.rewards(**step)
    assert scoring.taken() == {
        "questions": [first.text, second.text],
        "lengths": [2, 2, *[3] * 6, *[2] * 8],
        "with_signal": 1,
    }
    by_lot = Scoring(LONG, [first, second], PRESETS["easy"], frozenset([3])).rewards(**step)
    assert by_lot == [lot(text) for text in step["completions"]]

"""The run's counters: sums over all rounds, means over a window, kept in a checkpoint."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from shoal_ipc.answers.node import WINDOW
from shoal_policy.record.progress import RoundRecord, RunCounters, completion_metrics


def record(number: int, reward: float | None, **changes: object) -> RoundRecord:
    values: dict[str, object] = {field.name: 1 for field in fields(RoundRecord)}
    values |= {"round": number, "reward_local": reward, **changes}
    return RoundRecord(**values)  # type: ignore[arg-type]


def test_the_figures_of_completions_are_fields_of_a_round_and_all_of_their_kind() -> None:
    named = {field.name for field in fields(RoundRecord)}
    figures = set(completion_metrics([3], 0))
    assert figures == {name for name in named if name.startswith("completion_")} | {
        "tokens_generated"
    }
    assert set(completion_metrics([], 0)) == figures


def test_counters_add_up() -> None:
    progress = RunCounters()
    progress.add(record(1, 0.5, groups_external=3, groups_local=4, tokens_generated=10))
    progress.add(record(2, 0.25, groups_external=1, external_sampled=7, tokens_generated=5))
    assert progress.groups_external_used == 4
    assert progress.groups_local_used == 5
    assert progress.external_sampled == 8
    assert progress.tokens_generated == 15


def evaluated(number: int, **passed: tuple[int, int]) -> dict[str, Any]:
    """Return an evaluation in which of each family so many questions of so many passed."""
    num_items = sum(items for _, items in passed.values())
    return {
        "round": number,
        "pass@1": sum(right for right, _ in passed.values()) / num_items,
        "num_items": num_items,
        "families": {name: right / items for name, (right, items) in passed.items()},
        "items": {name: items for name, (_, items) in passed.items()},
    }


def add(progress: RunCounters, number: int, **passed: tuple[int, int]) -> tuple[int, float, float]:
    """Add an evaluation; return the first one's round and share, and the latest share."""
    progress.add_held_out(evaluated(number, **passed))
    first, latest = RunCounters.from_json(progress.to_json()).evaluations()
    assert first is not None and latest is not None and latest.round == number
    assert first.num_items == latest.num_items
    return first.round, first.pass_at_1, latest.pass_at_1


def test_the_first_evaluation_of_each_family_stays_while_families_come_and_go() -> None:
    progress = RunCounters()
    progress.begin({"gcd": "1", "sums": "2"})
    assert add(progress, 0, gcd=(2, 8), sums=(0, 8)) == (0, 2 / 16, 2 / 16)
    assert add(progress, 25, sums=(4, 8), gcd=(8, 8)) == (0, 2 / 16, 12 / 16)
    progress.begin({"gcd": "1", "sums": "2", "guess": "3"})
    assert add(progress, 30, gcd=(8, 8), sums=(4, 8), guess=(1, 4)) == (0, 3 / 20, 13 / 20)
    assert add(progress, 50, gcd=(8, 8), sums=(8, 8), guess=(4, 4)) == (0, 3 / 20, 1.0)
    progress.begin({"sums": "2", "guess": "3"})
    assert add(progress, 75, sums=(8, 8), guess=(4, 4)) == (0, 1 / 12, 1.0)
    progress.begin({"guess": "3"})
    assert add(progress, 80, guess=(3, 4)) == (30, 1 / 4, 3 / 4)
    assert add(progress, 90, guess=(4, 8)) == (90, 1 / 2, 1 / 2), "other questions of it"


def test_another_family_of_the_same_name_has_its_own_beginning() -> None:
    progress = RunCounters()
    progress.begin({"gcd": "1", "sums": "2"})
    add(progress, 0, gcd=(2, 8), sums=(0, 8))
    progress.begin({"gcd": "1", "sums": "other"})
    assert add(progress, 30, gcd=(8, 8), sums=(4, 8)) == (0, 6 / 16, 12 / 16)


def test_own_reward_starts_again_with_other_families_and_goes_on_with_the_same() -> None:
    progress = RunCounters()
    progress.begin({"gcd": "1"})
    for number in range(30):
        progress.add(record(number, 0.9))
    progress = RunCounters.from_json(progress.to_json())
    progress.begin({"gcd": "1"})
    assert progress.reward_initial == pytest.approx(0.9)
    progress.begin({"gcd": "1", "guess": "3"})
    assert progress.reward_initial is progress.reward_now is None
    progress.add(record(30, 0.5))
    assert progress.reward_initial == progress.reward_now == 0.5


def test_start_and_now_are_the_first_and_the_latest_rounds() -> None:
    progress = RunCounters()
    assert progress.reward_initial is None
    assert progress.reward_now is None
    for number in range(3 * WINDOW):
        progress.add(record(number, float(number)))
    assert progress.reward_initial == pytest.approx((WINDOW - 1) / 2)
    assert progress.reward_now == pytest.approx(2 * WINDOW + (WINDOW - 1) / 2)
    assert len(progress.first_rewards) == len(progress.last_rewards) == WINDOW


def test_a_round_without_own_questions_has_no_own_reward() -> None:
    progress = RunCounters()
    progress.add(record(1, 0.5))
    progress.add(record(2, None))
    assert progress.reward_now == 0.5
    assert progress.groups_external_used == 2


def test_it_survives_a_checkpoint_and_counters_of_another_version() -> None:
    progress = RunCounters(groups_not_shared=2)
    progress.add(record(1, 0.5))
    stored = json.loads(json.dumps(progress.to_json()))
    assert RunCounters.from_json(stored) == progress
    assert RunCounters.from_json({**stored, "unheard_of": 1}) == progress
    assert RunCounters.from_json({}) == RunCounters()

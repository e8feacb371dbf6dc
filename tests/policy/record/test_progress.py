"""The run's counters: sums over all rounds, means over a window, kept in a checkpoint."""

from __future__ import annotations

import json
from dataclasses import fields

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


def test_the_first_evaluation_stays_while_the_questions_are_the_same() -> None:
    progress, names = RunCounters(), ["gcd", "sums"]

    def add(number: int, num_items: int, of: list[str]) -> tuple[int, int]:
        families = dict.fromkeys(of, 0.5)
        progress.add_held_out(
            {"round": number, "pass@1": 0.5, "num_items": num_items, "families": families}
        )
        first, latest = RunCounters.from_json(progress.to_json()).evaluations()
        assert first is not None and latest is not None
        return first.round, latest.round

    assert add(0, 16, names) == (0, 0)
    assert add(25, 16, names[::-1]) == (0, 25)
    assert add(50, 24, names) == (50, 50)
    assert add(75, 24, ["gcd", "other"]) == (75, 75)


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

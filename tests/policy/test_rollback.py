"""When numbers stay not finite: the way back, and the end."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shoal_policy.generation.local import NonFiniteError
from shoal_policy.model.loading import Policy
from shoal_policy.node.link import NodeLink
from shoal_policy.record.progress import RoundRecord, RunCounters
from shoal_policy.rollback import (
    GOOD_ROUNDS,
    MAX_ROLLBACKS,
    STEPS_IN_A_ROW,
    DivergedError,
    RollbackWatch,
)
from shoal_policy.sapo import RoundOutcome
from shoal_policy.trainer import Trainer
from shoal_policy.update.grpo import GrpoConfig, make_optimizer, update
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.policy.poison import POISON, poison_token
from tests.policy.training_cases import trainer
from tests.support.local_node import NodeThread


def finite(made: Trainer) -> bool:
    return all(
        bool(value.isfinite().all()) for value in case.weights(made.training_run.policy).values()
    )


def spoil_optimizer(made: Trainer) -> None:
    """The next step's sums overflow, though its gradient is finite."""
    for state in made.training_run.optimizer.state.values():
        state["exp_avg"].fill_(math.inf)


def test_weights_that_a_step_made_non_finite_are_rolled_back(
    tmp_path: Path, model: str, node: NodeThread, link: NodeLink
) -> None:
    case.send(node, [case.external_group(number) for number in range(8)])
    made = trainer(tmp_path, model, link=link, local=1, external=1, rounds=5)
    ready: list[int] = []
    good: dict[str, torch.Tensor] = {}

    def on_round(record: RoundRecord, _progress: RunCounters) -> None:
        link.drain()  # what was leased ahead and not chosen is released by then
        ready.append(node.node.buffer.ready())
        if record.round == 2:
            made.checkpoint()
            good.update(case.weights(made.training_run.policy))
            spoil_optimizer(made)
        if record.round == 3:
            assert not finite(made)
            made.checkpoint()
            made._checkpoint_round = 2

    made._on_round = on_round
    restored: list[bool] = []
    undo = link.release_held

    def noting() -> None:
        restored.append(case.same_weights(good, case.weights(made.training_run.policy)))
        undo()

    link.release_held = noting  # type: ignore[method-assign]
    made.run()
    assert restored == [True]
    assert finite(made)
    assert (made.training_run.round, made.training_run.policy_version) == (5, 4)
    assert made.training_run.progress.rollbacks == 1
    # Groups of round 3 were released before round 4 sampled.
    assert ready == [7, 6, 5, 5, 4]
    again = trainer(tmp_path, model)
    assert (again.training_run.round, again.training_run.policy_version) == (5, 4)
    assert finite(again)
    assert again.training_run.progress.rollbacks == 1


class Overflow:
    """Makes gradients infinite for a number of steps, as a too narrow number format does."""

    def __init__(self, policy: Policy, steps: float) -> None:
        self.left = steps
        policy.model.model.norm.weight.register_hook(self)

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * math.inf if self.left > 0 else gradient


def count_down(made: Trainer, overflow: Overflow) -> list[int]:
    rollbacks: list[int] = []

    def on_round(_record: RoundRecord, progress: RunCounters) -> None:
        overflow.left -= 1
        rollbacks.append(progress.rollbacks)

    made._on_round = on_round
    return rollbacks


def test_three_bad_steps_in_a_row_go_back_and_two_do_not(
    tmp_path: Path, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    for steps, expected in ((STEPS_IN_A_ROW - 1, 0), (STEPS_IN_A_ROW, 1)):
        made = trainer(tmp_path / str(steps), model, rounds=steps + 2)
        count_down(made, Overflow(made.training_run.policy, steps))
        made.run()
        assert made.training_run.progress.rollbacks == expected
        assert made.training_run.progress.batches_quarantined == steps
        assert made.training_run.policy_version == 2
        message = [line for line in caplog.messages if line.endswith("groups by this node")]
        assert len(message) == steps
        caplog.clear()


def test_when_going_back_does_not_help_it_ends_with_a_word(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, rounds=0)
    rollbacks = count_down(made, Overflow(made.training_run.policy, math.inf))
    with pytest.raises(DivergedError, match="--learning-rate"):
        made.run()
    assert max(rollbacks) == MAX_ROLLBACKS
    assert len(rollbacks) == STEPS_IN_A_ROW * (MAX_ROLLBACKS + 1)


def test_a_good_step_that_spoils_the_weights_each_time_is_no_good_stretch(
    tmp_path: Path, model: str
) -> None:
    made = trainer(tmp_path, model, rounds=0)
    finish = made._finish_round

    def spoil(outcome: RoundOutcome) -> None:
        finish(outcome)
        assert outcome.record.round < 3 * MAX_ROLLBACKS, "it would go on for ever"
        with torch.no_grad():
            made.training_run.policy.model.model.norm.weight.fill_(math.nan)

    made._finish_round = spoil  # type: ignore[method-assign]
    with pytest.raises(DivergedError):
        made.run()
    assert made.training_run.progress.rollbacks == MAX_ROLLBACKS


def test_a_good_stretch_makes_up_for_rollbacks() -> None:
    policy, watch = tiny_models.policy(), RollbackWatch()
    none = update(policy, make_optimizer(policy, lr=1e-3), [], GrpoConfig(max_completion_tokens=8))
    good, bad = replace(none, num_steps=1), replace(none, skipped_nonfinite=1)
    for _ in range(2 * MAX_ROLLBACKS):
        watch.on_rollback()
        assert not any(watch.is_due(good) for _ in range(GOOD_ROUNDS))
    watch.on_rollback()
    assert [watch.is_due(bad) for _ in range(STEPS_IN_A_ROW)] == [False, False, True]


def test_a_model_that_was_never_finite_is_reported_at_once(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model)
    with torch.no_grad():
        made.training_run.policy.model.model.norm.weight.fill_(math.nan)
    with pytest.raises(NonFiniteError):
        made.run()
    assert made.training_run.progress.rollbacks == 0


def test_a_poisonous_group_is_named_and_done_with(
    tmp_path: Path, model: str, node: NodeThread, link: NodeLink, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = case.send(node, [case.external_group(1, (POISON, "1", "2", "3"))])
    made = trainer(tmp_path, model, link=link, local=0, external=1, rounds=2)
    poison_token(made.training_run.policy)
    before = case.weights(made.training_run.policy)
    held: list[object] = []
    made._on_round = lambda _record, _progress: held.extend(link.leases().held)
    made.run()
    # It was not trained on, so nothing of it could be given back later.
    assert held == []
    # Done with: it is not drawn a second time.
    assert made.training_run.progress.external_sampled == 1
    assert node.node.buffer.stats(0.0).consumed_total == 1
    assert case.same_weights(before, case.weights(made.training_run.policy))
    progress = made.training_run.progress
    assert (progress.batches_quarantined, progress.rollbacks) == (1, 0)
    assert f"(cause: groups); groups by {publisher} (" in caplog.text

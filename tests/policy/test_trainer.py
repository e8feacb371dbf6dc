"""The trainer's life: rounds, checkpoints, resuming, and what it tells its node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal_policy import trainer as trainer_module
from shoal_policy.checkpoint.saved import CheckpointError
from shoal_policy.model.loading import ModelError
from shoal_policy.node.link import NodeLink
from shoal_policy.trainer import Trainer
from tests.policy import training_cases as case
from tests.policy.training_cases import metrics, trainer
from tests.support.local_node import NodeThread


def test_it_runs_and_records_the_configured_rounds(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, rounds=3)
    before = case.weights(made.training_run.policy)
    made.run()
    assert (made.training_run.round, made.training_run.policy_version) == (3, 3)
    assert [row["round"] for row in metrics(tmp_path)] == [1, 2, 3]
    assert not case.same_weights(before, case.weights(made.training_run.policy))
    # Asked for no more than it has, it plays none.
    again = trainer(tmp_path, model, rounds=3)
    again.run()
    assert again.training_run.round == 3
    assert len(metrics(tmp_path)) == 3


def test_a_stop_writes_a_checkpoint(tmp_path: Path, model: str) -> None:
    seen: list[int] = []
    made = trainer(tmp_path, model, rounds=0, should_stop=lambda: len(seen) >= 2)
    made._on_round = lambda record, _progress: seen.append(record.round)
    made.run()
    assert seen == [1, 2]
    assert trainer(tmp_path, model).training_run.round == 2


def test_a_model_that_cannot_checkpoint_its_layers_is_refused_before_any_round(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(trainer(tmp_path, model, gradient_checkpointing=True).training_run.policy.model)
    monkeypatch.setattr(kind, "supports_gradient_checkpointing", False)
    with pytest.raises(ModelError, match="gradient-checkpointing"):
        trainer(tmp_path, model, gradient_checkpointing=True)


def test_checkpoints_are_written_at_the_configured_interval(tmp_path: Path, model: str) -> None:
    rounds: list[int] = []
    made = trainer(tmp_path, model, rounds=3, checkpoint_seconds=0.0)
    checkpoint = made.checkpoint

    def noting() -> None:
        rounds.append(made.training_run.round)
        checkpoint()

    made.checkpoint = noting  # type: ignore[method-assign]
    made.run()
    assert rounds == [1, 2, 3, 3]


def test_groups_are_given_up_only_once_a_checkpoint_holds_them(
    tmp_path: Path, model: str, node: NodeThread
) -> None:
    def sharing(link: NodeLink, rounds: int) -> Trainer:
        return trainer(tmp_path, model, link=link, local=1, external=2, rounds=rounds)

    case.send(node, [case.external_group(number) for number in range(6)])
    stats = node.node.buffer.stats
    consumed: list[int] = []
    with case.connected(node) as link:
        first = sharing(link, 2)
        first._on_round = lambda _record, _progress: consumed.append(stats(0.0).consumed_total)
        first.run()
        assert consumed == [0, 0]
        assert stats(0.0).consumed_total == 4
    # Killed between the checkpoint and its acknowledgement: the next start makes up for it.
    with case.connected(node) as link:
        link.consume_held = lambda: None  # type: ignore[method-assign]
        sharing(link, 3).run()
    node.restart()
    assert node.node.buffer.ready() == 2
    with case.connected(node) as link:
        resumed = sharing(link, 4)
        assert resumed.training_run.progress.groups_external_used == 6
        resumed.run()
        assert resumed.training_run.progress.groups_external_used == 6
        assert node.node.buffer.stats(0.0).groups == 0


def test_the_node_hears_how_it_goes(
    tmp_path: Path, model: str, node: NodeThread, link: NodeLink
) -> None:
    made = trainer(tmp_path, model, link=link, rounds=2)
    states: list[str] = []
    made._on_round = lambda _record, _progress: states.append(node.node.link.status["state"])
    made.run()
    status = node.node.link.status
    assert states == ["training", "training"]
    assert status["state"] == "finished"
    assert (status["round"], status["policy_version"]) == (2, 2)
    assert status["reward_local"] == status["reward_initial"] == 0.5
    assert status["model"] == model


def test_a_checkpoint_that_fails_does_not_stop_the_rounds(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    def fail(
        _data_dir: Path, _policy: object, _optimizer: object, state: Any, **_options: Any
    ) -> None:
        tries.append(state.round)
        raise CheckpointError("disk full")

    made = trainer(tmp_path, model, rounds=3, checkpoint_seconds=0.0)
    monkeypatch.setattr(trainer_module, "save_checkpoint", fail)
    with pytest.raises(CheckpointError):
        made.run()
    assert made.training_run.round == 3
    assert tries == [1, 2, 3, 3]
    assert "training continues" in caplog.text


@pytest.mark.parametrize(
    "changes", [{"learning_rate": 1e-3}, {"learning_rate": 5e-5}, {"lora_rank": 2}]
)
def test_a_rate_that_spoils_a_large_model_is_warned_of(
    changes: dict[str, Any],
    tmp_path: Path,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer(tmp_path, model, rounds=1, **changes)
    assert not caplog.messages, "a small one can bear it"
    monkeypatch.setattr("shoal_policy.trainer.LARGE_PARAMETERS", 1)
    trainer(tmp_path, model, rounds=1, **changes)
    assert any("too high" in text for text in caplog.messages) == (
        changes == {"learning_rate": 1e-3}
    )

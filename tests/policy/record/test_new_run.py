"""`--new-run` keeps the weights, resets every count, and no kill loses either run."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from shoal_policy.checkpoint.saved import latest_checkpoint
from shoal_policy.record.earlier_runs import STATE_FILE
from shoal_tasks.run_check import RunMismatchError
from tests.policy.training_cases import metrics, same_weights, trainer, weights

ONE, OTHER = "1a" * 32, "2b" * 32


def test_a_new_run_keeps_the_weights_and_resets_everything_else(tmp_path: Path, model: str) -> None:
    first = trainer(tmp_path, model, rounds=3, swarm=ONE, eval_every=1)
    first.run()
    kept = weights(first.training_run.policy)
    over = trainer(tmp_path, model, rounds=2, swarm=OTHER, new_run=True, eval_every=1)
    assert same_weights(weights(over.training_run.policy), kept)
    assert (over.training_run.round, over.training_run.progress.held_out) == (0, None)
    assert over.training_run.progress.first_rewards == []
    over.run()
    assert [row["round"] for row in metrics(tmp_path, "round")] == [1, 2]
    assert [row["round"] for row in metrics(tmp_path / "earlier-1", "round")] == [1, 2, 3]
    assert trainer(tmp_path, model, swarm=OTHER).training_run.round == 2, (
        "without the flag it resumes"
    )
    assert trainer(tmp_path, model, swarm=OTHER, new_run=True).training_run.round == 2, (
        "and with it"
    )
    back = trainer(tmp_path / "earlier-1", model, swarm=ONE)
    assert back.training_run.round == 3 and same_weights(weights(back.training_run.policy), kept)


def test_another_swarm_is_refused_and_nothing_is_touched(tmp_path: Path, model: str) -> None:
    trainer(tmp_path, model, rounds=1, swarm=ONE).run()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(RunMismatchError, match=r"swarm 1a1a.*swarm 2b2b.*--data-dir.*--new-run"):
        trainer(tmp_path, model, swarm=OTHER)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert trainer(tmp_path, model, swarm=ONE).training_run.round == 1
    assert trainer(tmp_path, model, swarm=OTHER, resume=False).training_run.round == 0


def test_a_run_of_no_swarm_goes_on_in_any(tmp_path: Path, model: str) -> None:
    trainer(tmp_path, model, rounds=1).run()
    trainer(tmp_path, model, rounds=2, swarm=ONE).run()
    with pytest.raises(RunMismatchError):
        trainer(tmp_path, model, swarm=OTHER)


def test_killed_at_any_move_either_run_is_whole(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies at the first, second, third … move of a file until there is none left."""
    rename = Path.rename
    for number in count(1):
        folder = tmp_path / f"run-{number}"
        first = trainer(folder, model, rounds=2, swarm=ONE)
        first.run()
        kept, moves = weights(first.training_run.policy), count(1)

        def dies(path: Path, target: Path, at: int = number, moves: count[int] = moves) -> Path:
            if next(moves) == at:
                raise KeyboardInterrupt
            return rename(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", dies)
            try:
                trainer(folder, model, swarm=OTHER, new_run=True)
            except KeyboardInterrupt:
                pass
            else:
                break
        again = trainer(folder, model, swarm=OTHER, new_run=True)
        assert same_weights(weights(again.training_run.policy), kept), f"killed at move {number}"
        assert again.training_run.round == 0
        aside = sorted(folder.glob("earlier-*/metrics.jsonl"))
        assert len(aside) == 1 and len(metrics(aside[0].parent)) >= 2
        assert [latest_checkpoint(one.parent).path for one in folder.glob("earlier-*/checkpoints")]
    assert number > 3


def test_a_checkpoint_that_a_kill_left_waiting_does_not_come_back(
    tmp_path: Path, model: str
) -> None:
    trainer(tmp_path, model, rounds=1, swarm=ONE).run()
    (tmp_path / "checkpoints").rename(tmp_path / "next-run")
    (tmp_path / "next-run").rename(tmp_path / "kept")
    (tmp_path / "next-run").mkdir()
    (tmp_path / "kept").rename(tmp_path / "next-run" / "checkpoints")
    trainer(tmp_path, model, swarm=ONE, resume=False)
    assert trainer(tmp_path, model, swarm=ONE).training_run.round == 0


def test_a_generate_only_run_of_another_swarm_is_refused(tmp_path: Path) -> None:
    from shoal_policy.generate_only import _is_of_other
    from shoal_settings.schema import Settings

    path, settings = tmp_path / STATE_FILE, Settings(data_dir=tmp_path)
    assert not _is_of_other(path, settings, OTHER)
    path.write_text(json.dumps({"round": 3, "progress": {}, "swarm": ONE}))
    assert not _is_of_other(path, settings, ONE)
    with pytest.raises(RunMismatchError, match="--new-run"):
        _is_of_other(path, settings, OTHER)
    assert _is_of_other(path, settings.model_copy(update={"new_run": True}), OTHER)

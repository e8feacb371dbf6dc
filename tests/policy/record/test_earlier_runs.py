"""`--no-resume` starts over once, and loses nothing of the run before."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_policy.checkpoint.saved import latest_checkpoint
from shoal_policy.model.loading import ModelError
from shoal_policy.record.earlier_runs import (
    StartOverError,
    archive_run,
    has_started_over,
    mark_started_over,
    num_earlier_runs,
)
from shoal_policy.record.sinks import run_name
from tests.policy.training_cases import metrics, trainer


def rounds(data_dir: Path) -> list[int]:
    return [row["round"] for row in metrics(data_dir)]


def test_the_next_start_resumes_the_new_run_not_the_one_set_aside(
    tmp_path: Path, model: str
) -> None:
    trainer(tmp_path, model, rounds=3).run()
    before = {path.name for path in tmp_path.iterdir()}
    trainer(tmp_path, model, rounds=1, resume=False).run()
    resumed = trainer(tmp_path, model, rounds=2)
    assert resumed.training_run.round == 1
    resumed.run()
    assert rounds(tmp_path) == [1, 2]
    # All of the earlier run is there, and can be taken up again by its folder.
    aside = tmp_path / "earlier-1"
    assert {path.name for path in aside.iterdir()} == before
    assert rounds(aside) == [1, 2, 3]
    assert trainer(aside, model).training_run.round == 3


def test_killed_before_its_first_checkpoint_the_new_run_does_not_give_way_to_the_old(
    tmp_path: Path, model: str
) -> None:
    trainer(tmp_path, model, rounds=1).run()
    trainer(tmp_path, model, resume=False)  # ends here
    assert trainer(tmp_path, model).training_run.round == 0


def test_each_earlier_run_has_a_folder_and_each_run_a_name(tmp_path: Path, model: str) -> None:
    names = [run_name(tmp_path)]
    for number in (1, 2, 3):
        trainer(tmp_path, model, rounds=number, resume=False).run()
        names.append(run_name(tmp_path))
    assert num_earlier_runs(tmp_path) == 2  # the first start found nothing to set aside
    kept = [latest_checkpoint(tmp_path / f"earlier-{number}").path for number in (1, 2)]
    assert [path and path.name for path in kept] == ["round-000001", "round-000002"]
    assert names == [names[0], names[0], f"{names[0]}-2", f"{names[0]}-3"]


def test_a_wrong_model_leaves_everything_in_its_place(tmp_path: Path, model: str) -> None:
    trainer(tmp_path, model, rounds=1).run()
    with pytest.raises(ModelError):
        trainer(tmp_path, str(tmp_path / "no model"), resume=False)
    assert trainer(tmp_path, model).training_run.round == 1


def test_what_cannot_be_moved_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "earlier-0").write_text("a user's file")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "earlier-1").symlink_to(tmp_path / "nowhere")
    aside = archive_run(tmp_path)
    assert aside == tmp_path / "earlier-2"
    (tmp_path / "started-over").mkdir()
    with pytest.raises(StartOverError, match="started-over"):
        mark_started_over(tmp_path, "a")


def test_a_mark_is_of_one_run_of_the_node(tmp_path: Path) -> None:
    assert not has_started_over(tmp_path, "a")
    mark_started_over(tmp_path, "a")
    assert has_started_over(tmp_path, "a")
    assert not has_started_over(tmp_path, "b")

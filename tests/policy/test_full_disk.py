"""A trainer on a disk that is full: it pauses wherever that is noticed, and loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal_policy import trainer as trainer_module
from shoal_policy.checkpoint import saving
from shoal_policy.checkpoint.saved import CheckpointError, NoRoomError, latest_checkpoint
from shoal_policy.generate_only import GenerateOnly
from shoal_policy.generation.transcript import PlayGames
from shoal_policy.record import pause
from shoal_policy.record.earlier_runs import STATE_FILE
from shoal_policy.rollouts import Answer, OwnGroup, Question
from shoal_policy.trainer import Trainer
from shoal_settings.schema import Settings
from shoal_wire.types import Digest, FinishReason, PolicyInfo
from tests.policy import training_cases as case

FULL = OSError(28, "No space left on device")
ROUNDS = 3


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause, "RETRY_S", 0.0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, model: str) -> Trainer:
    made = case.trainer(
        tmp_path_factory.mktemp("whole"), model, rounds=ROUNDS, checkpoint_seconds=0.0
    )
    made.run()
    return made


def reported(of: Trainer) -> list[str]:
    """Record why it is paused, from now on."""
    whys: list[str] = []
    tell = of._pause._on_change
    of._pause._on_change = lambda why: (whys.append(why), tell(why))[1]  # type: ignore[func-returns-value]
    return whys


def assert_lost_nothing(made: Trainer, data_dir: Path, undisturbed: Trainer) -> None:
    rounds = [row["round"] for row in case.metrics(data_dir, "round")]
    assert rounds == list(range(1, ROUNDS + 1))
    path = latest_checkpoint(data_dir).path
    assert path is not None and path.name == f"round-{ROUNDS:06d}"
    assert case.same_weights(
        case.weights(made.training_run.policy), case.weights(undisturbed.training_run.policy)
    )


def fails_a_few_times(call: Callable[..., Any], first: int, times: int = 3) -> Callable[..., Any]:
    """Fail for lack of room from call `first` on, for some calls."""
    calls = 0

    def failing(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if first <= calls < first + times:
            raise FULL
        return call(*arguments, **named)

    return failing


@pytest.mark.parametrize("first", [1, 4])
@pytest.mark.parametrize("where", ["appended", "moved", "model", "optimizer", "flushed"])
def test_whichever_write_fails_first_nothing_is_lost(
    where: str,
    first: int,
    tmp_path: Path,
    model: str,
    undisturbed: Trainer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = case.trainer(tmp_path, model, rounds=ROUNDS, checkpoint_seconds=0.0)
    place, name = {
        "appended": (os, "write"),
        "moved": (Path, "rename"),
        "model": (made.training_run.policy.model, "save_pretrained"),
        "optimizer": (torch, "save"),
        "flushed": (saving, "sync"),
    }[where]
    monkeypatch.setattr(place, name, fails_a_few_times(getattr(place, name), first))
    whys = reported(made)
    made.run()
    monkeypatch.undo()
    assert_lost_nothing(made, tmp_path, undisturbed)
    assert whys.count("") == len(whys) / 2, "each pause ends, and is reported once"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system whose size can be changed."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs the right to mount")
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "shoal-test", str(path)]
    if subprocess.run(command, check=False).returncode != 0:
        pytest.skip("needs the right to mount")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_on_a_real_disk_that_grows_bit_by_bit(disk: Path, model: str, undisturbed: Trainer) -> None:
    """Each pause is given a little more room: so every write finds the disk full at some time."""
    made = case.trainer(disk, model, rounds=ROUNDS, checkpoint_seconds=0.0)
    size = 64
    pauses = 0

    def lack() -> str:
        nonlocal size, pauses
        why = made._space_problem()
        if why:
            pauses += 1
            size += 24
            command = ["mount", "-o", f"remount,size={size}k", str(disk)]
            subprocess.run(command, check=True)
        return why

    made._pause._blocked_by = lack
    made.run()
    assert pauses >= 3
    assert_lost_nothing(made, disk, undisturbed)


def test_a_stop_while_it_waits_ends_it_with_one_line(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping: list[bool] = []
    made = case.trainer(
        tmp_path, model, rounds=0, checkpoint_seconds=0.0, should_stop=lambda: bool(stopping)
    )

    def fail(*_: object, **_named: object) -> None:
        raise NoRoomError("cannot write round-000001: no space left on the disk")

    monkeypatch.setattr(trainer_module, "save_checkpoint", fail)
    made._pause._on_change = stopping.append  # type: ignore[assignment]
    with pytest.raises(CheckpointError, match="no space left"):
        made.run()
    assert made.training_run.round == 1, "no round was begun while it waited"


def test_a_checkpoint_that_would_not_fit_is_not_begun(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does what a kill has left stand in its way."""
    made = case.trainer(tmp_path, model, rounds=1)
    made.run()
    leftover = tmp_path / "checkpoints" / "round-000002.tmp-1-abcd"
    leftover.mkdir()
    made.training_run.round = 2
    monkeypatch.setattr(saving, "_free_bytes", lambda _root: 1000)
    monkeypatch.setattr(saving, "_write", pytest.fail)
    with pytest.raises(NoRoomError, match=r"no space left on the disk \(\d+ MiB needed, 0 MiB"):
        made.checkpoint()
    assert not leftover.exists()


def test_a_node_that_only_generates_pauses_too(tmp_path: Path) -> None:
    requested: list[int] = []

    def answer(questions: Sequence[Question], _play: PlayGames) -> list[OwnGroup]:
        requested.append(made.round + 1)
        one = Answer(ids=(1,), text="1", finish_reason=FinishReason.STOP, logprobs=())
        return [OwnGroup(question=question, answers=(one, one)) for question in questions]

    made = GenerateOnly(
        Settings(data_dir=tmp_path, rounds=4, local=1, completions=2),
        case.surroundings(),
        seed=1,
        answer=answer,
        author=PolicyInfo(model_name="m", tokenizer_digest=Digest(b""), policy_version=0),
    )
    write = os.fsync
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fails_a_few_times(write, 3))
        made.run()
    assert requested == [1, 2, 3, 4]
    assert json.loads((tmp_path / STATE_FILE).read_text())["round"] == 4

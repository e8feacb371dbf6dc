"""Checkpoints: exact resume, and always a good one to load whatever was killed or damaged."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path

import pytest
import torch

from shoal_policy.checkpoint.saved import CheckpointError, TrainerState, latest_checkpoint
from shoal_policy.checkpoint.saving import LoadedCheckpoint, load_checkpoint, save_checkpoint
from shoal_policy.model.loading import Policy
from shoal_policy.update.grpo import make_optimizer, update
from shoal_settings.schema import Settings
from tests.policy import tiny_models
from tests.policy.update.update_cases import config, make_groups

LR = 3e-3


class Trainer:
    """The smallest thing with every kind of state that a trainer has."""

    def __init__(self) -> None:
        self.policy = tiny_models.policy()
        self.optimizer = make_optimizer(self.policy, lr=LR)
        self.round = 0
        self.seen: list[str] = []

    def step(self) -> None:
        update(self.policy, self.optimizer, make_groups(self.round), config())
        self.round += 1
        self.seen.append(f"{self.round:032x}")

    def state(self) -> TrainerState:
        return TrainerState(
            round=self.round,
            policy_version=self.round,
            consumed_ids=tuple(self.seen),
            counters={"tokens": 17, "reward": 0.1 + 0.2, "by_family": {"gcd": [1, 2]}},
        )

    def parts(self) -> tuple[Policy, torch.optim.Optimizer, TrainerState]:
        return self.policy, self.optimizer, self.state()

    def save(self, directory: Path) -> Path:
        return save_checkpoint(directory, *self.parts())


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in (directory / "checkpoints").iterdir())


def load(path: Path | None) -> LoadedCheckpoint:
    assert path is not None
    return load_checkpoint(path, Settings(learning_rate=LR))


def test_everything_comes_back(tmp_path: Path) -> None:
    trainer = Trainer()
    trainer.step()
    state = trainer.state()
    path = trainer.save(tmp_path)
    assert path == tmp_path / "checkpoints" / "round-000001"
    loaded = load(path)
    assert loaded.state == state
    assert loaded.policy.name == trainer.policy.name
    assert loaded.policy.tokenizer_digest == trainer.policy.tokenizer_digest
    assert loaded.policy.prompt_format == trainer.policy.prompt_format
    assert loaded.policy.eos_ids == trainer.policy.eos_ids
    assert loaded.policy.pad_id == trainer.policy.pad_id


def test_the_learning_rate_is_the_callers(tmp_path: Path) -> None:
    trainer = Trainer()
    trainer.step()
    loaded = load_checkpoint(trainer.save(tmp_path), Settings(learning_rate=0.5))
    assert [group["lr"] for group in loaded.optimizer.param_groups] == [0.5, 0.5]
    assert len(loaded.optimizer.state) == len(list(loaded.policy.model.parameters()))


def test_the_last_two_are_kept_and_leftovers_go(tmp_path: Path) -> None:
    trainer = Trainer()
    (tmp_path / "checkpoints" / "round-000001.tmp-1-ab").mkdir(parents=True)
    for _ in range(4):
        trainer.step()
        trainer.save(tmp_path)
    assert names(tmp_path) == ["round-000003", "round-000004"]


def test_a_second_checkpoint_of_a_round_replaces_nothing(tmp_path: Path) -> None:
    trainer = Trainer()
    first = trainer.save(tmp_path)
    trainer.seen.append("ff" * 16)
    second = trainer.save(tmp_path)
    assert first.is_dir()
    assert latest_checkpoint(tmp_path).path == second
    assert load(second).state.consumed_ids == ("ff" * 16,)
    third = trainer.save(tmp_path)
    assert latest_checkpoint(tmp_path).path == third
    assert names(tmp_path) == [second.name, third.name]


def test_no_checkpoint_yet(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path).path is None
    assert latest_checkpoint(tmp_path / "nowhere").skipped == ()


def damage(path: Path, how: str) -> None:
    weights_file = path / "model" / "model.safetensors"
    match how:
        case "flipped bit":
            data = bytearray(weights_file.read_bytes())
            data[-1] ^= 1
            weights_file.write_bytes(data)
        case "truncated":
            os.truncate(path / "optimizer.pt", 100)
        case "missing file":
            (path / "state.json").unlink()
        case "missing manifest":
            (path / "manifest.json").unlink()
        case "manifest is no JSON":
            (path / "manifest.json").write_text('{"files": ')
        case "manifest is a list":
            (path / "manifest.json").write_text("[]")
        case "empty manifest":
            (path / "manifest.json").write_text('{"files": {}}')


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("flipped bit", "model/model.safetensors was changed or damaged"),
        ("truncated", "optimizer.pt has 100 bytes instead of"),
        ("missing file", "state.json is missing"),
        ("missing manifest", "manifest.json is missing"),
        ("manifest is no JSON", "unreadable"),
        ("manifest is a list", "unreadable"),
        ("empty manifest", "its manifest lacks"),
    ],
)
def test_damaged_ones_are_skipped_and_named(tmp_path: Path, how: str, says: str) -> None:
    trainer = Trainer()
    good = trainer.save(tmp_path)
    trainer.step()
    bad = trainer.save(tmp_path)
    damage(bad, how)
    (tmp_path / "checkpoints" / "round-000009.tmp-1-ab").mkdir()
    latest = latest_checkpoint(tmp_path)
    assert latest.path == good
    assert [skip.path.name for skip in latest.skipped] == [bad.name, "round-000009.tmp-1-ab"]
    assert says in latest.skipped[0].reason
    assert load(latest.path).state.round == 0


def test_saving_after_damage_never_deletes_what_it_saved(tmp_path: Path) -> None:
    """Two newer ones look complete and are not: they must not push the good ones out."""
    trainer = Trainer()
    old = trainer.save(tmp_path)
    trainer.round = 5
    damage(save_checkpoint(tmp_path, *trainer.parts(), keep=9), "flipped bit")
    trainer.round = 6
    damage(save_checkpoint(tmp_path, *trainer.parts(), keep=9), "flipped bit")
    trainer.round = 1
    new = trainer.save(tmp_path)
    assert latest_checkpoint(tmp_path).path == new
    assert names(tmp_path) == [old.name, new.name, "round-000005", "round-000006"]


def test_after_damage_the_good_ones_outlive_saving(tmp_path: Path) -> None:
    trainer = Trainer()
    good = trainer.save(tmp_path)
    for _ in range(2):
        trainer.step()
    damage(trainer.save(tmp_path), "truncated")
    trainer.round = 1
    newer = trainer.save(tmp_path)
    assert latest_checkpoint(tmp_path).path == newer
    damage(newer, "flipped bit")
    assert latest_checkpoint(tmp_path).path == good


def test_loading_what_is_damaged_is_one_clear_error(tmp_path: Path) -> None:
    path = Trainer().save(tmp_path)
    (path / "optimizer.pt").write_bytes(b"junk")
    with pytest.raises(CheckpointError, match="cannot read round-000000"):
        load(path)
    document = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps({**document, "format_version": 99}))
    with pytest.raises(CheckpointError, match="format 99"):
        load(path)


def test_a_full_disk_is_an_error_and_the_last_checkpoint_stays(tmp_path: Path) -> None:
    """Real failed writes: no file of this process may grow beyond the limit."""
    trainer = Trainer()
    trainer.step()
    good = trainer.save(tmp_path)
    trainer.step()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sizes = sorted(file.stat().st_size for file in good.rglob("*") if file.is_file())
    try:
        # Each limit stops another file: the optimiser's, the weights, the configuration.
        for limit in (sizes[-1] - 1, sizes[-2] - 1, sizes[-3] - 1, 10):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            with pytest.raises(CheckpointError, match="cannot write round-000002"):
                trainer.save(tmp_path)
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert names(tmp_path) == [good.name]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert latest_checkpoint(tmp_path).path == good
    trainer.save(tmp_path)
    assert load(latest_checkpoint(tmp_path).path).state.round == 2

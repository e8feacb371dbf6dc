"""Each setting of the trainer is read by each way to a trainer: new, or resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal_policy.trainer import Trainer
from shoal_settings.trainer_settings import TrainerSettings
from tests.policy import training_cases as case
from tests.support.read_settings import Read, reading

KEYS = frozenset(TrainerSettings.__annotations__)
BY_THE_COMMAND = {
    *("role", "keep_running", "alone", "threads", "seed"),  # which process there is
    *("generator", "base_url", "remote_model", "concurrency"),  # by what the command makes of them
}
"""Read before there is a trainer, in `policy/shoal_policy/__main__.py` and by the node."""


def played(folder: Path, model: str, rounds: int, **more: Any) -> Read:
    known = case.settings(folder, model, rounds=rounds, kl_beta=0.1, lora_rank=2, **more)
    settings, read = reading(known)
    Trainer(settings, case.surroundings(), seed=1).run()
    return read


def test_every_setting_is_read_by_a_new_and_by_a_resumed_trainer(
    tmp_path: Path, model: str
) -> None:
    begun = played(tmp_path, model, 1, eval_every=1, eval_per_family=1)
    assert sorted(KEYS - begun - BY_THE_COMMAND) == []
    taken_up = played(tmp_path, model, 2, eval_every=1, eval_per_family=1)
    assert not begun & KEYS - taken_up

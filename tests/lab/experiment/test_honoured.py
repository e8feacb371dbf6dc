"""Each setting of the trainer is read by a swarm in memory, or refused before it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal_lab.experiment.flags import UsageError
from shoal_lab.experiment.plan import NOT_IN_MEMORY, Job, uniform_arm
from shoal_lab.experiment.run.in_process import play, workers
from shoal_settings.schema import Settings
from shoal_settings.trainer_settings import TrainerSettings
from tests.lab.experiment.jobs import parse_flags
from tests.settings.settings_cases import as_text, other_value
from tests.support.read_settings import reading

SMALL = {
    "model": "tiny",
    "device": "cpu",
    "completions": 2,
    "max_new_tokens": 4,
    "eval_every": 1,
    "eval_per_family": 1,
    "lora_rank": 2,
    "kl_beta": 0.1,
}


class Noted(Job):
    """A job whose settings record which of them are read."""

    def node_settings(self, index: int, data_dir: Path = Path("unused")) -> Settings:
        settings, read = reading(super().node_settings(index, data_dir))
        NOTED.append(read)
        return settings


NOTED: list[set[str]] = []


def test_every_setting_is_read_or_refused() -> None:
    arm = uniform_arm("1/1", 2, local=1, external=1)
    with workers() as shared:
        play(Noted(arm=arm, seed=1, rounds=2, base=SMALL), shared, lambda _line: None)
    read = set().union(*NOTED)
    # Rounds are the job's own.
    left = set(TrainerSettings.__annotations__) - read - set(NOT_IN_MEMORY) - {"rounds"}
    assert sorted(left) == []


@pytest.mark.parametrize("key", NOT_IN_MEMORY)
def test_what_is_not_read_is_refused_in_one_line(key: str) -> None:
    value: Any = other_value(key)
    with pytest.raises(UsageError, match=f"{key} has no effect in a swarm in memory"):
        parse_flags("--quick", "--set", f"{key}={as_text(value)}")

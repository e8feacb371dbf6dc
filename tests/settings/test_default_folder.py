"""Folders of runs that name none: another model, other tasks or another swarm, another folder."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from shoal_settings.default_folder import (
    default_folder,
    default_folders,
    default_folders_without_model,
)
from shoal_settings.schema import Settings

RUNS: dict[str, dict[str, Any]] = {
    "node": {},
    "node-smollm2": {"model": "smollm2"},
    "node-chat-1": {"tasks": "chat-1"},
    "node-smollm2-chat-1": {"model": "smollm2", "tasks": "chat-1", "lora_rank": 16},
    "node-gsm8k": {"tasks": "gsm8k.toml"},
    "node-smollm2-gsm8k": {"model": "smollm2", "tasks": ("none", "gsm8k.toml")},
    "node-sums-gsm8k": {"tasks": "sums.toml,gsm8k.toml"},
    "node-games-1": {"tasks": "games-1", "model": "tiny-games"},
    "node-paper-sums": {"tasks": ("paper", "a/sums.toml")},
    "node-sums": {"tasks": ("sums.toml", "easy")},
    "node-friends": {"swarm_name": "friends"},
    "node-1a2b3c4d": {"swarm_id": "1a2b3c4d" * 8, "tasks": "paper", "bootstrap": ()},
    "node-none": {"tasks": "none"},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_its_folder(name: str) -> None:
    settings = Settings(**RUNS[name])
    assert default_folder(settings) == Path(".shoal", name)
    first, second = (next(one) for one in [default_folders(settings)] * 2)
    assert (first.name, second.name) == (name, f"{name}-2")


def test_runs_that_differ_have_other_folders() -> None:
    for one, other in combinations(RUNS.values(), 2):
        assert default_folder(Settings(**one)) != default_folder(Settings(**other))


def test_what_is_no_run_of_its_own_has_the_same(tmp_path: Path) -> None:
    same: list[dict[str, Any]] = [
        {"rounds": 5},
        {"seed": 3},
        {"local": 2},
        {"role": "generate", "generator": "openai"},
    ]
    assert {default_folder(Settings(**one)) for one in same} == {Path(".shoal/node")}
    moved = [Settings(tasks=(f"{at}/mine.toml",)) for at in ("a", "b")]
    assert len({default_folder(one) for one in moved}) == 1


def test_a_peer_that_trains_nothing_has_no_models_folder() -> None:
    settings = Settings(model="smollm2", tasks=("chat-1",), data_dir=Path(".shoal/bootstrap"))
    found = default_folders_without_model(settings)
    assert [next(found).name, next(found).name] == ["bootstrap-chat-1", "bootstrap-chat-1-2"]

"""Games in an export: each completion as a conversation, with the environment's side replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal_tasks.families import TRAIN_SEED_MIN
from shoal_tasks.run_memory import save_task_files
from shoal_tasks.swarm import starting_families
from shoal_tasks.task_file import load_task_file
from shoal_tasks.turns import join_messages
from shoal_wire.manifest import SwarmRules, make_manifest
from shoal_wire.types import RolloutGroup
from tests.shoal.export.test_data import archive_of, rows_of
from tests.support import factories as make
from tests.tasks.games import game_file

FIRST = "Guess a number from 1 to 6."


@pytest.fixture
def node_dir(tmp_path: Path) -> Path:
    """A node's folder whose archive holds a group of two games and one question."""
    file = str(game_file(tmp_path, system="You play."))
    manifest = make_manifest("games", starting_families("easy", [file]), SwarmRules())
    author = make.Author(manifest)
    folder = tmp_path / "node"
    plain = make.group(1, ("a\x1eb", "c"), of=make.task(1, question=make.real_question(1)))
    raw = author.envelope(author.batch([_games(file), plain]))
    archive_of(folder, manifest, (True, raw))
    return folder


def _games(file: str) -> RolloutGroup:
    spec = load_task_file(Path(file))
    task = make.task_of(spec, TRAIN_SEED_MIN, FIRST)
    texts = (join_messages(["x", "1", "2", "3", "4", "5"]), join_messages(["no"]))
    return make.group(texts=texts, of=task)


def _exported(node_dir: Path, *flags: str) -> list[dict[str, Any]]:
    out = node_dir.parent / "out"
    assert main(["export", "data", "--data-dir", str(node_dir), "--out", str(out), *flags]) == 0
    return rows_of(out)


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_game_is_a_conversation_with_roles(
    node_dir: Path, tmp_path: Path, *, is_noted: bool
) -> None:
    file = str(tmp_path / "guess.toml")
    save_task_files(node_dir, [file] if is_noted else ["/none.toml"])
    games, plain = _exported(node_dir, *([] if is_noted else ["--tasks", file]))
    assert plain["messages"] is None and games["question"] == FIRST
    first, second = games["messages"]
    assert first[:4] == [
        {"role": "system", "content": "You play."},
        {"role": "user", "content": FIRST},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "That is no number."},
    ]
    assert second[2:] == [
        {"role": "assistant", "content": "no"},
        {"role": "user", "content": "That is no number."},
    ]
    messages = [turn["content"] for turn in first if turn["role"] == "assistant"]
    assert join_messages(messages) == games["completions"][0]
    assert "`assistant` is the policy" in (tmp_path / "out" / "README.md").read_text()

    import datasets

    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"].to_list() == [games, plain]


def test_without_the_task_file_the_texts_are_as_they_were_signed(node_dir: Path) -> None:
    games, _ = _exported(node_dir, "--format", "jsonl")
    assert games["messages"] is None and games["question"] is None
    assert "\x1e" in games["completions"][0]

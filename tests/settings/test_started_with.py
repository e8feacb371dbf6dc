"""What a folder remembers of its start: the command that continues it, and no other."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_settings.loader import Loaded
from shoal_settings.schema import Settings
from shoal_settings.started_with import (
    STARTED_WITH_FILE,
    StartedWithError,
    check_command,
    continuation,
    save_started_with,
    started_with,
)

CHOICES = {
    "model": st.sampled_from(["smollm2", "a folder/it's", "$(x)"]),
    "seed": st.integers(1, 9),
    "rounds": st.integers(1, 9),
    "mdns": st.booleans(),
    "task_files": st.lists(st.sampled_from(["a.toml", "b c.toml"]), max_size=2).map(tuple),
    "new_run": st.just(True),
    "resume": st.just(False),
}


def loaded(folder: Path, chosen: dict[str, object]) -> Loaded:
    settings = Settings().model_copy(update={**chosen, "data_dir": folder})
    origins = dict.fromkeys(Settings.model_fields, "default") | dict.fromkeys(chosen, "flag")
    return Loaded(settings=settings, origins=origins)


@given(st.fixed_dictionaries({}, optional=CHOICES))
def test_the_command_has_what_was_chosen_and_neither_an_end_nor_a_new_beginning(
    tmp_path_factory: pytest.TempPathFactory, chosen: dict[str, object]
) -> None:
    folder = tmp_path_factory.mktemp("a node")
    save_started_with(loaded(folder, chosen), folder, "node", "node")
    words = shlex.split(continuation(folder, "shoal"))
    assert words[:2] == ["shoal", "node"] and words[-2:] == ["--data-dir", str(folder)]
    kept = {name for name in chosen if name in ("model", "seed", "mdns")}
    assert {name for name in kept if any(name in word for word in words[2:-2])} == kept
    assert not any(word.startswith(("--rounds", "--new-run", "--no-resume")) for word in words)
    found = started_with(folder)
    assert found is not None and found.settings["model"] == str(chosen.get("model", "tiny"))


def test_a_swarms_folder_is_no_nodes_and_its_nodes_go_on_with_it(tmp_path: Path) -> None:
    (node := tmp_path / "node-1").mkdir()
    save_started_with(loaded(tmp_path, {"nodes": 2}), tmp_path, "swarm", "swarm")
    save_started_with(loaded(node, {}), node, "node", "node")
    assert continuation(node, "shoal") == f"shoal swarm --nodes=2 --data-dir {tmp_path}"
    check_command(tmp_path, "swarm")
    for name in ("node", "bootstrap", "judge"):
        with pytest.raises(StartedWithError, match="is the folder of a swarm: `shoal swarm"):
            check_command(tmp_path, name)


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"command": 7}', '{"command": "node", "flags": 7, "settings": 7}']
)
def test_a_broken_file_says_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / STARTED_WITH_FILE).write_text(content)
    check_command(tmp_path, "node")
    assert continuation(tmp_path, "shoal") in ("", f"shoal node --data-dir {tmp_path}")


def test_what_it_holds_does_nothing_to_a_terminal(tmp_path: Path) -> None:
    document = {"command": "node", "flags": ["\x1b[2J"], "settings": {"\x1b": "\u202e"}}
    (tmp_path / STARTED_WITH_FILE).write_text(json.dumps(document))
    found = started_with(tmp_path)
    assert found is not None
    assert "\x1b" not in str(found) and "\u202e" not in str(found)

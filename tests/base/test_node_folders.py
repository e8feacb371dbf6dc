"""A folder for each model, by names that are safe."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_base.node_folders import (
    TOY,
    folders_for,
    folders_with,
    model_in,
    name_of,
    swarm_in,
    with_names,
)


def checkpoint(folder: Path, model: str, name: str = "round-000003") -> None:
    path = folder / "checkpoints" / name
    path.mkdir(parents=True)
    (path / "state.json").write_text(json.dumps({"model_name": model}))


def first(model: str, base: Path, count: int = 1) -> list[str]:
    return [path.name for path in islice(folders_for(model, base), count)]


def test_a_second_node_has_another(tmp_path: Path) -> None:
    base = tmp_path / "node"
    assert first(TOY, base, 3) == ["node", "node-2", "node-3"]
    checkpoint(base, TOY, "round-000002")
    checkpoint(base, "org/other", "round-000010.1")
    checkpoint(tmp_path / "node-2", "org/other")
    assert model_in(base) == "org/other"
    assert first("org/other", base, 3) == ["node", "node-2", "node-3"]
    assert first(TOY, base) == ["node-3"], "what holds another model's is left alone"


def test_the_swarm_of_a_checkpoint_is_known_or_empty(tmp_path: Path) -> None:
    assert swarm_in(tmp_path) == ""
    path = tmp_path / "checkpoints" / "round-000003"
    path.mkdir(parents=True)
    for content in ("", "[]", "{}", '{"swarm": null}', "[" * 100_000):
        (path / "state.json").write_text(content)
        assert swarm_in(tmp_path) == ""
    (path / "state.json").write_text('{"swarm": "12ab"}')
    assert swarm_in(tmp_path) == "12ab"


@given(st.lists(st.text("ab-", min_size=1, max_size=30), max_size=5))
def test_a_folder_named_after_any_names_is_short_and_theirs(names: list[str]) -> None:
    folder = with_names(Path("x/node"), names)
    assert len(folder.name) < 60
    assert folder == with_names(Path("x/node"), names)
    assert (folder == Path("x/node")) == (not names)


def test_a_folder_that_cannot_be_read_holds_no_model(tmp_path: Path) -> None:
    base = tmp_path / "node"
    assert model_in(base) is None
    (base / "checkpoints" / "round-000001").mkdir(parents=True)
    assert model_in(base) is None
    (base / "checkpoints" / "round-000001" / "state.json").write_text("[]")
    assert model_in(base) is None
    (base / "checkpoints" / "round-000002.tmp-1-x").mkdir()
    assert first(TOY, base) == ["node"]


def test_a_models_folder_is_named_by_its_last_part_and_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder / "model").mkdir(parents=True)
    names = {name_of(name) for name in ("a/model", "./a/model", str(tmp_path / "a/model"))}
    assert len(names) == 1
    assert re.fullmatch(r"model-[0-9a-f]{6}", names.pop())
    assert name_of("a/model") != name_of("b/model")


@given(st.text(min_size=1, max_size=300))
def test_any_name_is_safe_and_short(model: str) -> None:
    name = name_of(model)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,50}", name)
    assert not name.isdigit(), "a number is a second node's"


def test_the_folders_that_hold_a_file(tmp_path: Path) -> None:
    for name in ("node", "node-2", "node-other", "judge"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "node.sock").touch()
    found = folders_with("node.sock", tmp_path / "node")
    assert [one.name for one in found] == ["node", "node-2", "node-other"]

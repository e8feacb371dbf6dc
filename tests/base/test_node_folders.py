"""A folder for each model, by names that are safe."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_base.node_folders import TOY, beside, folders_for, model_in, name_of


def checkpoint(folder: Path, model: str, name: str = "round-000003") -> None:
    path = folder / "checkpoints" / name
    path.mkdir(parents=True)
    (path / "state.json").write_text(json.dumps({"model_name": model}))


def first(model: str, base: Path, count: int = 1) -> list[str]:
    return [path.name for path in islice(folders_for(model, base), count)]


def test_each_model_has_its_own_and_a_second_node_another(tmp_path: Path) -> None:
    base = tmp_path / "node"
    assert first(TOY, base, 3) == ["node", "node-2", "node-3"]
    assert first("tiny-sparse", base, 2) == ["node-tiny-sparse", "node-tiny-sparse-2"]
    hub = "Qwen/Qwen2.5-0.5B-Instruct"
    assert first(hub, base) == ["node-Qwen-Qwen2.5-0.5B-Instruct"]


def test_a_folder_from_before_is_gone_on_with(tmp_path: Path) -> None:
    base = tmp_path / "node"
    checkpoint(base, TOY, "round-000002")
    checkpoint(base, "org/other", "round-000010.1")
    checkpoint(tmp_path / "node-2", "org/other")
    assert model_in(base) == "org/other"
    assert first("org/other", base, 3) == ["node", "node-2", "node-org-other"]
    assert first(TOY, base) == ["node-3"], "what holds another model's is left alone"


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


def test_what_lies_beside(tmp_path: Path) -> None:
    for name in ("node", "node-2", "node-other", "judge"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "node.sock").touch()
    assert [one.name for one in beside(tmp_path / "node", "node.sock")] == ["node-2", "node-other"]

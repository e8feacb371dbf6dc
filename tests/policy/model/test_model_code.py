"""A model's folder is data: none of its Python runs, wherever it stands, whatever stdin says."""

from __future__ import annotations

import ast
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal_policy.model.loading import ModelError, check_model, load_policy, load_tokenizer
from tests.policy import tiny_models
from tests.test_house import at, product

CLASSES = {
    "AutoConfig": "own.OwnConfig",
    "AutoModel": "own.Own",
    "AutoModelForCausalLM": "own.Own",
    "AutoTokenizer": ["own.OwnTokenizer", None],
}
LOADERS: dict[str, Callable[[str], Any]] = {
    "check": check_model,
    "policy": load_policy,
    "reader": load_tokenizer,
}
FOREIGN: list[dict[str, Any]] = [
    # all that a model of its own kind may declare
    {"config.json": {"model_type": "own", "auto_map": CLASSES}},
    # no class for its configuration, whose type is unknown
    {"config.json": {"model_type": "own", "auto_map": {"AutoModelForCausalLM": "own.Own"}}},
    # a kind that transformers knows, but not as a causal model
    {"config.json": {"model_type": "vit", "auto_map": {"AutoModelForCausalLM": "own.Own"}}},
    # code from a repository of another name
    {"config.json": {"model_type": "own", "auto_map": {"AutoConfig": "some/repo--own.OwnConfig"}}},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose every Python file leaves a mark if it runs, and a user who says yes."""
    path = Path(tiny_models.save(tmp_path / "model"))
    for name in ("own.py", "custom_generate/generate.py"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(f"open({str(tmp_path / 'RAN')!r}, 'w')\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 100))
    return path


def change(path: Path, files: dict[str, dict[str, Any]]) -> None:
    for name, values in files.items():
        known = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps({**known, **values}))


@pytest.mark.parametrize("files", FOREIGN)
def test_its_code_does_not_run_and_one_line_says_so(
    folder: Path, files: dict[str, dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    change(folder, files)
    for name, load in LOADERS.items():
        try:
            load(str(folder))
        except ModelError as error:
            assert "\n" not in str(error)
            assert "custom Python code" in str(error), name
            assert "shoal does not run" in str(error)
        else:
            assert name == "reader"  # a tokenizer alone may be all data
    assert not (folder.parent / "RAN").exists()
    assert "y/N" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "files",
    [
        {"config.json": {"auto_map": CLASSES}},
        {"tokenizer_config.json": {"auto_map": {"AutoTokenizer": CLASSES["AutoTokenizer"]}}},
        {},  # custom_generate alone
    ],
)
def test_a_kind_that_transformers_knows_loads_without_its_code(
    folder: Path, files: dict[str, dict[str, Any]]
) -> None:
    change(folder, files)
    for load in LOADERS.values():
        load(str(folder))
    assert not (folder.parent / "RAN").exists()


def _loading_calls(nodes: tuple[ast.AST, ...]) -> Iterator[ast.Call]:
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_peft = ast.unparse(node.func.value).startswith("peft.")  # it has no such argument
            if node.func.attr in ("from_pretrained", "from_config") and not of_peft:
                yield node


def test_every_loading_call_of_the_product_refuses_code() -> None:
    calls = [(path, call) for path, nodes in product() for call in _loading_calls(nodes)]
    assert len(calls) >= 10
    for path, call in calls:
        given = {one.arg: ast.unparse(one.value) for one in call.keywords}
        assert given.get("trust_remote_code") == "False", at(path, call)


def test_nothing_else_of_transformers_loads_a_model_by_name() -> None:
    by_name = {"pipeline", "get_class_from_dynamic_module", "AutoPeftModelForCausalLM"}
    for path, nodes in product():
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                ("transformers", "peft")
            ):
                assert not by_name & {one.name for one in node.names}, at(path, node)

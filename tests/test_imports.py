"""No import cycle: not at run time, not in a function, not for a type hint.

import-linter's layers order the rooms. Within a room two modules could still know each other's
types, and a reader of one would need both.
"""

from __future__ import annotations

import ast
import graphlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_FOLDERS = ("bootstrap", "lab", "p2p", "policy", "proto")


def test_no_module_imports_itself_through_others() -> None:
    assert cycle_in(graph_of(sources())) == []


def test_a_cycle_of_type_hints_is_found() -> None:
    modules = {
        "a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from b import B\n",
        "b": "def late() -> None:\n    import c.d\n",
        "c.d": "import a\n",
    }
    assert set(cycle_in(graph_of(modules))) == {"a", "b", "c.d"}
    assert cycle_in(graph_of({**modules, "c.d": "import e\n"})) == []


def sources() -> dict[str, str]:
    """Return the text of every module of the product, by its dotted name."""
    files = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    return {
        _name_of(Path(file)): (ROOT / file).read_text(encoding="utf-8")
        for file in files
        if not file.startswith(("tests/", "docs/")) and (ROOT / file).exists()
    }


def _name_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] in _FOLDERS else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def graph_of(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the modules that each imports, wherever the import stands."""
    return {
        name: set(_imports_of(text, modules)) - {name} for name, text in sorted(modules.items())
    }


def _imports_of(text: str, modules: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                name = inner if inner in modules else node.module
                if name in modules:
                    yield name


def cycle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """Return one cycle, in order; an empty list if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []

"""An import contract for all modules whose docstring has a marker, instead of a list of modules.

    "…: bounds and shares only. Pure."  ─▶  no chain of imports from there to trio, sockets, a clock

A marker in a package's `__init__` applies to all its modules. `Pure but for …` is not a marker.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import ContractCheck, fields
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.domain.imports import ModuleExpression

from tests.support.rooms import package_folders

ROOT = Path(__file__).resolve().parents[2]


class MarkedContract(ForbiddenContract):
    """A `forbidden` contract with the modules below `rooms` that have `marker` as sources."""

    type_name = "marked"

    marker: Any = fields.StringField()
    rooms: Any = fields.SetField(subfield=fields.StringField())
    source_modules: Any = fields.SetField(subfield=fields.ModuleExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Return what `ForbiddenContract` finds for the marked modules.

        Raises:
            ValueError: a room has no marked module, so the rule would hold nothing there.
        """
        marked = {module for room in self.rooms for module in self._marked(graph, room)}
        self.source_modules = {ModuleExpression(module) for module in marked}
        return super().check(graph, verbose)

    def _marked(self, graph: ImportGraph, room: str) -> list[str]:
        below = {room} | set(graph.find_descendants(room))
        found = [module for module in below if bears(docstring(module), self.marker)]
        if not found:
            raise ValueError(f"no module of {room} bears the marker {self.marker!r}")
        return found


def bears(text: str, marker: str) -> bool:
    """Return whether a docstring has the marker as a sentence, or as the first clause of one."""
    return (
        re.search(rf"(?:^|\n\s*\n|[.:;?]\s+){re.escape(marker)}(?=[.:;,]| and |$)", text)
        is not None
    )


def docstring(module: str) -> str:
    """Return a module's docstring; empty if it has none."""
    for path in _files(module):
        if path.exists():
            return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return ""


def _files(module: str) -> Iterator[Path]:
    for folder in package_folders():
        path = folder / module.replace(".", "/")
        yield path / "__init__.py"
        yield path.with_suffix(".py")

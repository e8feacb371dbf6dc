"""Every benchmark can be imported, because some run only months after a module has moved."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import benchmarks

MODULES = sorted(path.stem for path in Path(benchmarks.__path__[0]).glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_it_can_be_loaded(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")

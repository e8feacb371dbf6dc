"""Modules that sympy imports on demand. For the worker process only."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from typing import Final

_PACKAGES: Final = (
    *("assumptions", "calculus", "concrete", "core", "functions", "integrals", "logic", "matrices"),
    *("ntheory", "polys", "series", "sets", "simplify", "solvers", "strategies", "utilities"),
)
"""Packages of sympy that import one another on demand: inside the sandbox there is no disk."""


def load_sympy() -> None:
    """Import the parts of sympy that import one another on demand."""
    for package in _PACKAGES:
        _import_all(f"sympy.{package}")


def _import_all(package: str) -> None:
    folder = importlib.import_module(package)
    for module in pkgutil.walk_packages(folder.__path__, f"{package}."):
        if not {"tests", "benchmarks", "benchmark"} & set(module.name.split(".")):
            # Some need a package that is not installed, and are never used.
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)

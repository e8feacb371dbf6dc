"""Modules that libraries import on demand. For the worker process only.

Where the machine permits it, libraries stay readable inside the sandbox. Where it does not, or
where importing would use up a reward's time, `load_parts` imports them in advance. A module that is
still missing must not look like "not installed", which the file's own `except` could hide:
`LateImports` records it as a refusal, with the line of the file.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Final

from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.worker.sympy_parts import load_sympy

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "datetime": ("_strptime",),
    "time": ("_strptime",),
    "concurrent.futures": ("concurrent.futures.thread",),
    "encodings": tuple(
        f"encodings.{name}"
        for name in (
            *("ascii", "latin_1", "cp1252", "utf_8_sig", "utf_16", "utf_16_le", "utf_16_be"),
            *("utf_32", "idna", "punycode", "unicode_escape", "raw_unicode_escape", "rot_13"),
            *("hex_codec", "base64_codec"),
        )
    ),
}
"""Modules that the standard library imports only on use, as far as rewards need them."""


def load_parts(tree: ast.AST) -> None:
    """Import what a file's modules would import on demand, while the disk is readable."""
    names = _names_of_modules(tree)
    for node in ast.walk(tree):
        # numpy.random is an attribute that numpy imports on first access.
        if isinstance(node, ast.Attribute) and (found := _dotted(node)) is not None:
            first, *rest = found
            module: object = sys.modules.get(names.get(first, ""))
            for name in rest:
                with contextlib.suppress(Exception):
                    module = getattr(module, name)
    for name, parts in _PARTS.items():
        if name in sys.modules:
            for part in parts:
                importlib.import_module(part)
    if "math_verify" in sys.modules:
        from shoal_tasks.worker.math_answers import warm_up  # imports math_verify

        warm_up()
    elif "sympy" in sys.modules:
        load_sympy()


def _names_of_modules(tree: ast.AST) -> dict[str, str]:
    """Return the modules that a file imports, by the names that it binds."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.Attribute) -> list[str] | None:
    """Return the names of `a.b.c`; None if it does not begin with a name."""
    names = [node.attr]
    value = node.value
    while isinstance(value, ast.Attribute):
        names.append(value.attr)
        value = value.value
    return [value.id, *reversed(names)] if isinstance(value, ast.Name) else None


class LateImports(importlib.abc.MetaPathFinder):
    """The last import finder: finds nothing, but records a module that exists outside the sandbox.

    So "not loaded" is distinguished from "not installed".
    """

    def __init__(self, guard: AuditGuard) -> None:
        """List the modules that exist. Call while the disk is readable."""
        self._guard = guard
        packages = {
            name: path
            for name, module in list(sys.modules.items())
            if isinstance(path := getattr(module, "__path__", None), list)
        }
        self._existing = {module.name for module in pkgutil.iter_modules()}
        for name, path in packages.items():
            self._existing |= {f"{name}.{module.name}" for module in pkgutil.iter_modules(path)}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find nothing; record a module that exists outside the sandbox."""
        if fullname in self._existing:
            self._guard.record(f"to load {fullname}")
        return None

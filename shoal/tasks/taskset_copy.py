"""The reward file of a taskset: verifiers' own scoring, and a copy of the taskset's modules."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import pprint
import site
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from shoal.tasks.taskset_template import TEMPLATE
from shoal_tasks.errors import FamilyError

_MAX_SOURCE_CHARS: Final = 1 << 20
_LIBRARY: Final = "verifiers"

Sources = Mapping[str, tuple[str, bool, str]]
"""Modules by name: file relative to the import root, whether it is a package, source."""


def copied_modules(module: ModuleType, loaded_before: frozenset[str]) -> Sources:
    """Return the source of a taskset's package, and of the modules imported from the same folder.

    Raises `FamilyError`: it is not Python source, or too large.
    """
    top = module.__name__.partition(".")[0]
    if top == _LIBRARY:
        return {}
    root = _root(sys.modules[top])
    sources = {}
    for name, one in sorted(sys.modules.items()):
        is_own = name.partition(".")[0] == top
        if not is_own and (name in loaded_before or _is_installed(root)):
            continue
        file = Path(getattr(one, "__file__", None) or "")
        if file.suffix == ".py" and root in file.parents:
            text = file.read_text(encoding="utf-8")
            is_package = hasattr(one, "__path__")
            sources[name] = (file.relative_to(root).as_posix(), is_package, text)
        elif is_own and file.name:
            raise FamilyError(f"{name} is not Python source, and cannot be copied: {file.name}")
    if sum(len(source) for _, _, source in sources.values()) > _MAX_SOURCE_CHARS:
        raise FamilyError(f"the source of {top} has more than {_MAX_SOURCE_CHARS} characters")
    return sources


def _root(package: ModuleType) -> Path:
    """Return the folder from which a module or package was imported."""
    if package.__file__ is None:
        return Path(next(iter(package.__path__))).parent
    file = Path(package.__file__)
    return file.parent.parent if hasattr(package, "__path__") else file.parent


def _is_installed(root: Path) -> bool:
    return str(root) in {*site.getsitepackages(), site.getusersitepackages()}


def reward_file(
    where: str, source: str, task: Any, hooks: tuple[str, ...], sources: Sources
) -> str:
    """Return the text of a taskset's reward file."""
    import verifiers

    kinds = (type(task), type(task.data), type(task.config))
    for kind in kinds:
        if "." in kind.__qualname__:
            raise FamilyError(f"{kind.__qualname__} of {where} is not a top-level class")
    config = task.config.model_dump(mode="json", exclude_unset=True)
    filled = {
        "WHERE": where,
        "SOURCE": source,
        "VERSION": verifiers.__version__,
        "IMPORTS": "\n".join(f"import {name}" for name in sorted(_imported(sources))),
        "CLASSES": repr(tuple((kind.__module__, kind.__name__) for kind in kinds)),
        "CONFIG": pprint.pformat(config, width=90),
        "HOOKS": repr(hooks),
        "SOURCES": pprint.pformat(dict(sources), width=90),
    }
    text = TEMPLATE
    for key, value in filled.items():
        text = text.replace(f"@{key}@", value)
    return text


def _imported(sources: Sources) -> Iterator[str]:
    """Yield, once each, the modules of libraries that the copies import."""
    found = set()
    for _, _, source in sources.values():
        for node in _nodes(ast.parse(source)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    for name in found - {"__future__"} - set(sources):
        if name in sys.modules or ("." not in name and importlib.util.find_spec(name)):
            yield name


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module, without `load`: the rows exist, so it is not called."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.FunctionDef) and node.name == "load"):
            yield node
            yield from _nodes(node)


def first_line(error: BaseException) -> str:
    """Return an error's name and first line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def is_old_style(module: str) -> bool:
    """Return whether a module has `load_environment`, the interface of verifiers 0.1."""
    try:
        spec = importlib.util.find_spec(module)
        text = inspect.getsource(sys.modules[module]) if module in sys.modules else ""
        if spec is not None and spec.origin is not None:
            text = Path(spec.origin).read_text(encoding="utf-8")
    except (ImportError, OSError, TypeError, ValueError):
        return False
    return "def load_environment(" in text

"""docs/contributing/upstream/README.md has every private name that `shoal_p2p.net` touches.

A new release then fails here with the names that it has lost, before anything else does. Private
names are those of an ancestor that a class overrides, reads or sets, and whatever one object reads
of another.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import shoal_p2p.net

ROOT = Path(__file__).resolve().parents[3]
ROOM = Path(shoal_p2p.net.__path__[0])
FILES = sorted(ROOM.glob("*.py"))
ROW = re.compile(r"^\| `(libp2p\.[\w.]+)` \| ((?:`_\w+`(?:, )?)+) \|$", re.MULTILINE)


def listed() -> set[tuple[str, str]]:
    text = (ROOT / "docs/contributing/upstream/README.md").read_text(encoding="utf-8")
    return {
        (owner, name) for owner, names in ROW.findall(text) for name in re.findall(r"_\w+", names)
    }


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_own(node: ast.expr) -> bool:
    """True for `self` and `super()`."""
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Name) and node.id in ("self", "cls", "super")


def names_in(tree: ast.AST, *, stored_only: bool) -> Iterator[str]:
    """Yield the private names that a class defines, or all that it uses."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.Attribute(value=value, attr=name, ctx=ctx) if is_own(value):
                if not stored_only or isinstance(ctx, ast.Store):
                    yield name


@functools.cache
def defined_by(owner: type) -> set[str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    return {name for name in names_in(tree, stored_only=True) if is_private(name)}


def of_ancestors(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the private names of py-libp2p's base classes that the classes of a file use."""
    module = importlib.import_module(f"shoal_p2p.net.{path.stem}")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        touched = set(names_in(node, stored_only=False))
        for above in getattr(module, node.name).__mro__[1:]:
            if above.__module__.startswith("libp2p."):
                for name in touched & defined_by(above):
                    yield f"{above.__module__}.{above.__qualname__}", name


def of_others(path: Path) -> Iterator[str]:
    """Yield the private names that code of a file reads from other objects, by any means."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(value=value, attr=name) if is_private(name) and not is_own(value):
                yield name
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("libp2p"):
                yield from (one.name for one in names if is_private(one.name))
            case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=arguments):
                for argument in arguments:
                    if isinstance(argument, ast.Constant) and is_private(str(argument.value)):
                        yield str(argument.value)


def test_the_list_has_all_private_names_used_from_base_classes() -> None:
    touched = {pair for path in FILES if path.stem != "__init__" for pair in of_ancestors(path)}
    others = {name for path in FILES for name in of_others(path)}
    assert touched, "else nothing was looked at"
    assert touched <= listed()
    surplus = {pair for pair in listed() - touched if pair[1] not in others}
    assert not surplus, "no code touches them any more"


def test_the_list_has_all_private_names_read_from_other_objects() -> None:
    assert {name for path in FILES for name in of_others(path)} <= {name for _, name in listed()}


def test_the_installed_release_has_the_names() -> None:
    for owner, name in sorted(listed()):
        module, _, named = owner.rpartition(".")
        assert name in defined_by(getattr(importlib.import_module(module), named)), (owner, name)

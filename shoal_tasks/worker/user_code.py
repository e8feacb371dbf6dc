"""Python files of the user's own: their imports, their loading, and what their errors say.

For the worker process only. What a file imports is loaded before the sandbox; the file itself runs
inside it.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
import types
from collections.abc import Callable
from typing import Any, Final, TypeVar

from shoal_base.bounded import LINE_CHARS
from shoal_tasks.errors import FamilyError
from shoal_tasks.rows import check_file
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.item_limit import ItemLimit, ItemTimeout
from shoal_tasks.worker.late_imports import load_parts

R = TypeVar("R")

CHECK_EVERY: Final = 64
"""One completion in so many is scored twice: a cost of 1.6 %, and a function or game that changes
with the hour or with what came before is found within a few rounds of eight answers."""
_MODULE: Final = "shoal_user_code"


class UserCodeError(FamilyError):
    """A function or class that cannot be used; one line with its file and line."""


class RefusedError(UserCodeError):
    """Something was refused to it."""


class OverLimitError(UserCodeError):
    """A function that takes more time or memory than it may."""


class UnrepeatableError(UserCodeError):
    """One that differs from one moment to the next: peers could never agree on it."""


def preload_imports(source: bytes, path: str) -> None:
    """Import what a file imports, while there is a disk. Runs nothing of the file itself.

    Raises `UserCodeError`: it is no Python, or imports what is not installed or lies beside it.
    """
    try:
        tree = ast.parse(source, path)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise UserCodeError(f"{path}, line {line}: {getattr(error, 'msg', error)}") from None
    optional = _optional(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise UserCodeError(f"{path}, line {node.lineno}: it is one file, without `from .`")
        try:
            _load(node, path)
        except UserCodeError:
            if node not in optional:
                raise
    load_parts(tree)


def _load(node: ast.AST, path: str) -> None:
    """Import what a statement imports; nothing for others. Raises `UserCodeError`."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            _import(alias.name, path, node.lineno)
    elif isinstance(node, ast.ImportFrom) and node.module:
        module = _import(node.module, path, node.lineno)
        for alias in node.names:
            if not hasattr(module, alias.name) and hasattr(module, "__path__"):
                _import(f"{node.module}.{alias.name}", path, node.lineno)


def _optional(tree: ast.AST) -> set[ast.AST]:
    """Return the statements in a `try` with a handler: the file itself may do without."""
    tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers]
    return {inner for one in tries for node in one.body for inner in ast.walk(node)}


def _import(name: str, path: str, line: int) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserCodeError(f"{path}, line {line}: cannot import {name}: {error}") from None


def within(
    limit: ItemLimit, what: str, function: Callable[..., R], *given: Any, items: int = 1
) -> R:
    """Call a function within the share of `items`. Raises `UserCodeError` if that is not enough."""
    try:
        with limit.of(items):
            found = function(*given)
    except ItemTimeout:
        pass
    except MemoryError:
        raise OverLimitError(f"{what} uses more memory than an item may") from None
    # It may swallow every exception, the time-out too: the limit's own note decides.
    if limit.expired:
        raise OverLimitError(f"{what} uses more processor time than an item may")
    return found


def watched(
    guard: AuditGuard, path: str, function: Callable[..., R], *given: Any, is_scoring: bool = True
) -> R:
    """Call what runs a user's file, and return what it returned.

    Raises, in one line with the line of the file, `RefusedError`: something was refused to it,
    whatever it did about that; `UserCodeError`: it raised.
    """
    failure = ""
    with guard.watching(path, is_scoring=is_scoring):
        try:
            found = function(*given)
        except ItemTimeout:
            raise
        except UserCodeError:
            if refused := guard.first_refusal:
                raise RefusedError(refused) from None
            raise
        except BaseException as error:  # noqa: BLE001  any program
            failure = error_line(error, path)
        if refused := guard.first_refusal:
            raise RefusedError(refused)
        if failure:
            raise UserCodeError(failure)
    return found


def load(
    spec: FamilySpec, source: bytes, path: str, digest: object, name: str, guard: AuditGuard
) -> Any:
    """Run a family's file and return what it calls so; None where it has no such name.

    Raises `FamilyError`: it has not this `digest`, where there is one, or it raises, or something
    is refused to it.
    """
    if digest is not None:
        check_file(spec, source, path, digest)
    module = types.ModuleType(_MODULE)
    module.__file__ = path
    sys.modules[_MODULE] = module  # dataclasses look their module up
    # Without its lines, a traceback that the file prints would read the file from the disk.
    text = source.decode(errors="replace")
    linecache.cache[path] = (len(source), None, text.splitlines(keepends=True), path)
    code = watched(guard, path, compile, source, path, "exec", 0, True, is_scoring=False)
    watched(guard, path, exec, code, module.__dict__, is_scoring=False)
    return getattr(module, name, None)


def error_line(error: BaseException, path: str) -> str:
    """Return one line about an error, with the line of the user's file that it came from."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    where = path if line is None else f"{path}, line {line}"
    text = str(error).splitlines()[0][:LINE_CHARS] if str(error) else ""
    return f"{where}: {type(error).__name__}{': ' if text else ''}{text}"

"""Python files of the user: their imports, their loading and their error messages.

For the worker process only. A file's imports are loaded before the sandbox, and the file itself
runs inside it.
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
"""One completion in this many is scored twice, at a cost of 1.6 %. A function or game that depends
on the time or on earlier calls is found within a few rounds of eight completions."""
_MODULE: Final = "shoal_user_code"


class UserCodeError(FamilyError):
    """A function or class that cannot be used; one line with its file and line number."""


class RefusedError(UserCodeError):
    """The sandbox refused an operation of the file."""


class OverLimitError(UserCodeError):
    """A function that takes more time or memory than allowed."""


class NondeterministicError(UserCodeError):
    """A nondeterministic function or game: peers could never agree on its rewards."""


def preload_imports(source: bytes, path: str) -> None:
    """Import what a file imports, while the disk is readable. Does not run the file itself.

    Raises `UserCodeError`: it is not valid Python, or imports a module that is not installed, such
    as one next to it.
    """
    try:
        tree = ast.parse(source, path)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise UserCodeError(f"{path}, line {line}: {getattr(error, 'msg', error)}") from None
    optional = _optional(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise UserCodeError(
                f"{path}, line {node.lineno}: relative imports do not work; use one file"
            )
        try:
            _load(node, path)
        except UserCodeError:
            if node not in optional:
                raise
    load_parts(tree)


def _load(node: ast.AST, path: str) -> None:
    """Import what an import statement imports. Raises `UserCodeError`."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            _import(alias.name, path, node.lineno)
    elif isinstance(node, ast.ImportFrom) and node.module:
        module = _import(node.module, path, node.lineno)
        for alias in node.names:
            if not hasattr(module, alias.name) and hasattr(module, "__path__"):
                _import(f"{node.module}.{alias.name}", path, node.lineno)


def _optional(tree: ast.AST) -> set[ast.AST]:
    """Return the statements in a `try` with handlers: the file can do without their imports."""
    tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers]
    return {inner for one in tries for node in one.body for inner in ast.walk(node)}


def _import(name: str, path: str, line: int) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserCodeError(f"{path}, line {line}: cannot import {name}: {error}") from None


def run_limited(
    limit: ItemLimit, what: str, function: Callable[..., R], *given: Any, items: int = 1
) -> R:
    """Call a function within the time of `items` items. Raises `OverLimitError` beyond it."""
    try:
        with limit.of(items):
            found = function(*given)
    except ItemTimeout:
        pass
    except MemoryError:
        raise OverLimitError(f"{what} uses more memory than an item may") from None
    # The function may swallow every exception, `ItemTimeout` too, so check the limit's own flag.
    if limit.expired:
        raise OverLimitError(f"{what} uses more processor time than an item may")
    return found


def run_watched(
    guard: AuditGuard, path: str, function: Callable[..., R], *given: Any, is_scoring: bool = True
) -> R:
    """Call a function that runs a user's file, and return its result.

    Raises, in one line that names the line of the file:
        RefusedError: an operation was refused, even if the file caught the exception.
        UserCodeError: the file raised.
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
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            failure = error_line(error, path)
        if refused := guard.first_refusal:
            raise RefusedError(refused)
        if failure:
            raise UserCodeError(failure)
    return found


def load_attribute(
    spec: FamilySpec, source: bytes, path: str, digest: object, name: str, guard: AuditGuard
) -> Any:
    """Run a family's file and return its attribute `name`; None if there is none.

    Raises `FamilyError`: it differs from `digest` (None: not checked), raises, or is refused an
    operation.
    """
    if digest is not None:
        check_file(spec, source, path, digest)
    module = types.ModuleType(_MODULE)
    module.__file__ = path
    sys.modules[_MODULE] = module  # dataclasses look up their module
    # Without cached lines, a traceback that the file prints would open the file on disk.
    text = source.decode(errors="replace")
    linecache.cache[path] = (len(source), None, text.splitlines(keepends=True), path)
    code = run_watched(guard, path, compile, source, path, "exec", 0, True, is_scoring=False)
    run_watched(guard, path, exec, code, module.__dict__, is_scoring=False)
    return getattr(module, name, None)


def error_line(error: BaseException, path: str) -> str:
    """Return one line about an error, with the line of the user's file that raised it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    where = path if line is None else f"{path}, line {line}"
    text = str(error).splitlines()[0][:LINE_CHARS] if str(error) else ""
    return f"{where}: {type(error).__name__}{': ' if text else ''}{text}"

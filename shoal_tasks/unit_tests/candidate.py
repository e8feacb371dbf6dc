"""The process of the tested code, which runs a completion and is isolated from the tests.

It serves calls (`serve_calls`), or runs a script with text on its standard input (`run_script`).
It never receives tests or expected values.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import random
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, Final

from shoal_base.bounded import LINE_CHARS
from shoal_tasks.unit_tests.channel import Channel
from shoal_tasks.unit_tests.remote import Proxy, RemoteCalls
from shoal_tasks.unit_tests.sources import program
from shoal_tasks.unit_tests.values import Handle

NAME: Final = "solution"
"""The module's name in tests of calls, so that a ``"__main__"`` block is skipped."""
FILE: Final = "<solution>"
_RECURSION_LIMIT: Final = 1050
"""Python's own limit, and the depth that this process uses itself."""


def serve_calls(channel: Channel) -> None:
    """Run the code in the first message, then serve calls of what it defines."""
    first = channel.receive()
    open_streams()

    def load(_target: None, wanted: list[str], entry: str, shared: list[str]) -> Any:
        names = _run(program(first["prompt"], first["code"], entry), NAME)
        calls.shared.update({one: names[one] for one in shared if isinstance(names.get(one), type)})
        found = {name: names[name] for name in wanted if name in names}
        return found, _entry(names, entry) if entry else None

    def callback(handle: Handle) -> _Callback:
        return _Callback(calls, handle)

    calls = RemoteCalls(channel, {**OPERATIONS, "load": load}, describe, callback, error_line)
    while True:
        calls.serve(channel.receive())


def run_script(channel: Channel) -> None:
    """Run the code in the first message as a script, and report how it ended."""
    job = channel.receive()
    code = job["code"]
    os.pwrite(0, job["input"].encode(errors="surrogatepass"), 0)
    open_streams()
    error = ""
    try:
        _run(program("", code, ""), "__main__")
    except SystemExit as ending:
        if ending.code not in (None, 0):
            error = f"it exits with {ending.code!r}"
    except BaseException as raised:  # noqa: BLE001  tested code may raise anything
        error = error_line(raised)
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.__stdout__):
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]
    channel.send({"error": error[:LINE_CHARS]})


def open_streams() -> None:
    """Open standard input, output and error on this process's first descriptors."""

    def opened(descriptor: int, mode: str, errors: str) -> Any:
        return open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)

    sys.stdin = sys.__stdin__ = opened(0, "r", "surrogateescape")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = opened(1, "w", "replace")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = opened(2, "w", "replace")  # type: ignore[misc]


def _run(text: str, name: str) -> dict[str, Any]:
    """Run a program as a module with this name, and return its namespace."""
    module = types.ModuleType(name)
    sys.modules[name] = module  # dataclasses look up their module
    sys.setrecursionlimit(_RECURSION_LIMIT)
    threading.Thread.start = _run_thread  # type: ignore[method-assign, assignment]
    threading.Thread.join = _ignore  # type: ignore[method-assign]
    random.seed(0)
    exec(compile(text, FILE, "exec"), module.__dict__)
    return module.__dict__


def _run_thread(thread: threading.Thread) -> None:
    """Run a thread's function at once: there are no threads. Programs want a larger stack."""
    with contextlib.suppress(Exception, SystemExit):
        thread.run()


def _ignore(*_given: object, **_named: object) -> None:
    """Do nothing."""


def _entry(namespace: dict[str, Any], entry: str) -> Any:
    """Resolve an entry point: `name`, `Class().method`, or a method of `Solution`."""
    head, *rest = entry.split(".")
    name = head.removesuffix("()")
    solution = namespace.get("Solution")
    if name not in namespace and isinstance(solution, type) and hasattr(solution, name):
        return getattr(solution(), name)
    if name not in namespace:
        raise NameError(f"the code defines no {name!r}")
    found = namespace[name]
    if head.endswith("()"):
        found = found()
    return functools.reduce(getattr, rest, found)


class _Callback(Proxy):
    """A function of the tests that was passed to the tested code."""

    def __init__(self, calls: RemoteCalls, handle: Handle) -> None:
        self._calls, self._shoal_handle = calls, handle
        self.__name__ = self.__qualname__ = handle.name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._calls.request("call", self, *arguments, **keywords)


_FUNCTIONS: Final = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    type(str.lower),
    type(int.__add__),
    type((1).__add__),
    functools.partial,
    type(functools.lru_cache(lambda: None)),
)


def describe(value: Any) -> tuple[str, str, str]:
    """Return kind, name and detail of an object that is passed by reference."""
    kind = type(value)
    if issubclass(kind, type):
        base = ""
        if issubclass(value, BaseException):
            names = (one.__name__ for one in value.__mro__ if one.__module__ == "builtins")
            base = next(names)
        return "class", value.__name__, base
    if issubclass(kind, types.ModuleType):
        return "module", value.__name__, ""
    if issubclass(kind, _FUNCTIONS):
        return "function", str(getattr(value, "__name__", kind.__name__)), ""
    if hasattr(kind, "__next__") and hasattr(kind, "__iter__") and kind.__module__ != NAME:
        return "iterator", kind.__name__, ""
    return "object", kind.__name__, ""


def _send(target: Any, value: Any) -> Any:
    return target.send(value)


def _exit(target: Any) -> None:
    target.__exit__(None, None, None)


def _operators() -> dict[str, Callable[..., Any]]:
    import operator

    names = ("getitem", "setitem", "delitem", "contains", "eq", "lt", "le", "gt", "ge")
    arithmetic = ("add", "sub", "mul", "truediv", "and_", "or_", "xor")
    return {name.strip("_"): getattr(operator, name) for name in names + arithmetic}


OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    **_operators(),
    "call": lambda target, *arguments, **keywords: target(*arguments, **keywords),
    "get": getattr,
    "set": setattr,
    "iter": iter,
    "next": next,
    "send": _send,
    "close": lambda target: target.close(),
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "enter": lambda target: target.__enter__(),
    "exit": _exit,
}
"""Operations that the tests may request, by name."""


def error_line(error: BaseException) -> str:
    """Return one line about an error, with the line of the tested code that raised it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    line = error.lineno if isinstance(error, SyntaxError) else line
    try:
        text = str(error).partition("\n")[0][:LINE_CHARS]
    except Exception:  # noqa: BLE001  an exception defined by tested code
        text = ""
    where = f" (line {line} of the code)" if line else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"

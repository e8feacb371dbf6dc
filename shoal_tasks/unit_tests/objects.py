"""Proxies, in the tests' process, of the tested code's functions, classes and objects.

No value that a test compares with is ever sent to the tested code. Therefore ``==`` of a foreign
object is identity, whatever its class defines, it supports no arithmetic, and an object that was
returned by the code, rather than created by the test, accepts no arguments.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any, Final

from shoal_tasks.unit_tests.remote import Proxy, RemoteCalls, exception_class
from shoal_tasks.unit_tests.values import Handle, ValueRefusedError


class Objects:
    """Creates the proxies of one run of tests."""

    def __init__(self) -> None:
        self.calls: RemoteCalls | None = None
        """Set once, before the first proxy is created."""
        self._classes: dict[str, type] = {}

    def make(self, handle: Handle) -> Any:
        """Return the proxy of an object. Raises `ValueRefusedError` if tests cannot use it."""
        assert self.calls is not None
        match handle.kind:
            case "function":
                return RemoteFunction(self.calls, handle)
            case "iterator":
                return RemoteIterator(self.calls, handle)
            case "class" if handle.detail:
                return self._exception_class(handle)
            case "class":
                made = _remote_class(self.calls, handle)
                self._classes[handle.name] = made
                return made
            case "module":
                return _module(handle.name)
        return _bind(self._classes.get(handle.name, RemoteObject), self.calls, handle)

    def _exception_class(self, handle: Handle) -> type[Exception]:
        assert self.calls is not None
        made = exception_class(handle.name, handle.detail)
        return self.calls.exceptions.setdefault(handle.name, made)


def _module(name: str) -> Any:
    """Return this process's own version of a module that the tested code imported."""
    if name not in sys.modules or name.startswith("shoal"):
        raise ValueRefusedError(f"the tests cannot use the module {name}")
    return importlib.import_module(name)


class RemoteFunction(Proxy):
    """A callable function of the tested code."""

    def __init__(self, calls: RemoteCalls, handle: Handle) -> None:
        self._shoal_calls, self._shoal_handle = calls, handle
        self.__name__ = self.__qualname__ = handle.name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._shoal_calls.request("call", self, *arguments, **keywords)


class RemoteIterator(Proxy):
    """An iterator or generator of the tested code."""

    def __init__(self, calls: RemoteCalls, handle: Handle) -> None:
        self._shoal_calls, self._shoal_handle = calls, handle

    def __iter__(self) -> RemoteIterator:
        return self

    def __next__(self) -> Any:
        return self._shoal_calls.request("next", self)

    def send(self, value: Any) -> Any:
        """Resume a generator with a value."""
        return self._shoal_calls.request("send", self, value)

    def close(self) -> None:
        """End a generator."""
        self._shoal_calls.request("close", self)


class RemoteObject(Proxy):
    """An object of the tested code, with a class that the tests use or do not know."""

    _shoal_calls: RemoteCalls
    _shoal_is_made_here = False

    def _shoal_ask(self, operation: str, *arguments: Any) -> Any:
        if arguments[operation in _NAMED :] and not self._shoal_is_made_here:
            raise TypeError(f"an object of {self._shoal_handle.name!r} was returned, not a value")
        return self._shoal_calls.request(operation, self, *arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = self._shoal_ask("get", name)
        if isinstance(found, RemoteObject) and self._shoal_is_made_here:
            object.__setattr__(found, "_shoal_is_made_here", True)
        if type(found) is RemoteFunction and not self._shoal_is_made_here:
            return functools.partial(_call, found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        self._shoal_ask("set", name, value)

    def __iter__(self) -> Any:
        return self._shoal_ask("iter")

    def __next__(self) -> Any:
        return self._shoal_ask("next")

    def __len__(self) -> int:
        return int(self._shoal_ask("len"))

    def __bool__(self) -> bool:
        return bool(self._shoal_ask("bool"))

    def __str__(self) -> str:
        return str(self._shoal_ask("str"))

    def __repr__(self) -> str:
        return str(self._shoal_ask("repr"))

    def __enter__(self) -> Any:
        return self._shoal_ask("enter")

    def __exit__(self, *_error: object) -> None:
        self._shoal_ask("exit")

    def __call__(self, *arguments: Any) -> Any:
        return self._shoal_ask("call", *arguments)

    def __getitem__(self, key: Any) -> Any:
        return self._shoal_ask("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._shoal_ask("setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        self._shoal_ask("delitem", key)

    def __contains__(self, item: Any) -> bool:
        return bool(self._shoal_ask("contains", item))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        # For two objects of a class that the tests use, `==` is part of the tested behaviour.
        is_pair = type(self) is type(other) is not RemoteObject
        return is_pair and bool(self._shoal_calls.request("eq", self, other))

    def __hash__(self) -> int:
        return self._shoal_handle.number


def _call(function: RemoteFunction) -> Any:
    """Call a function without arguments."""
    return function()


_NAMED: Final = frozenset({"get", "set"})
"""Operations whose first argument is the name of an attribute."""


def _pairwise(operation: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not (self._shoal_is_made_here and type(other) is type(self)):
            return NotImplemented
        return self._shoal_calls.request(operation, self, other)

    return method


for _operation in ("lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "and", "or", "xor"):
    setattr(RemoteObject, f"__{_operation}__", _pairwise(_operation))


class _RemoteClass(Proxy, type):
    """The metaclass of `_remote_class`: calling a class creates an object over there."""

    _shoal_calls: RemoteCalls

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        made = cls._shoal_calls.request("call", cls, *arguments, **keywords)
        if isinstance(made, RemoteObject):
            object.__setattr__(made, "_shoal_is_made_here", True)
        return made

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls._shoal_calls.request("get", cls, name)


def _remote_class(calls: RemoteCalls, handle: Handle) -> type:
    members = {"_shoal_calls": calls, "_shoal_handle": handle}
    return _RemoteClass(handle.name, (RemoteObject,), members)


def _bind(kind: type, calls: RemoteCalls, handle: Handle) -> Any:
    made: Any = object.__new__(kind)
    object.__setattr__(made, "_shoal_calls", calls)
    object.__setattr__(made, "_shoal_handle", handle)
    return made


def describe(value: Any) -> tuple[str, str, str]:
    """Describe an object of the tests to the tested code: it can only call functions."""
    if not callable(value):
        name = type(value).__name__
        raise ValueRefusedError(f"the tests pass an object of {name!r} to the code")
    return "function", getattr(value, "__name__", type(value).__name__), ""

"""The process of the tests, which decides. The tested code runs in another process.

It runs a row's own tests on proxies of what the code defines. Its verdict is one line with the
reason why a test fails, or an empty one.
"""

from __future__ import annotations

import copy
import io
import linecache
import math
import random
import sys
import types
import unittest
from typing import Any, Final

from shoal_base.bounded import LINE_CHARS
from shoal_tasks.unit_tests.channel import Channel, ChannelClosed
from shoal_tasks.unit_tests.forms import CALLS
from shoal_tasks.unit_tests.objects import Objects, describe
from shoal_tasks.unit_tests.remote import Proxy, RemoteCalls, line_of
from shoal_tasks.unit_tests.sources import root_of

FILE: Final = "<tests>"
_SHOWN_CHARS: Final = 60
_CLOSE: Final = 1e-6
"""Maximum relative error of a float in a table of calls."""


class TestFailedError(Exception):
    """The code fails a test; one line."""


def check(tests: dict[str, Any], code: str, channel: Channel) -> str:
    """Return why the code fails the tests; empty if it passes all."""
    random.seed(0)
    try:
        run = _Run(tests, channel)
        run.load(code)
        run.calls_of_a_table() if tests["kind"] == CALLS else run.program()
    except TestFailedError as failure:
        return str(failure)
    except ChannelClosed as ending:
        return str(ending)
    except (SystemExit, KeyboardInterrupt, GeneratorExit):
        return "the tests exit"
    except BaseException as error:  # noqa: BLE001  tests may raise anything
        return _error_line(error)
    # A test may swallow every exception, also that of a closed channel.
    return "the code ended its process" if channel.is_closed else ""


class _Run:
    """The tests of one completion."""

    def __init__(self, tests: dict[str, Any], channel: Channel) -> None:
        self._tests, self._channel = tests, channel
        self._names: dict[str, Any] = {"__name__": "tests"}
        self._entry: Any = None
        objects = Objects()
        operations = {"call": lambda target, *given, **named: target(*given, **named)}
        self._calls = objects.calls = RemoteCalls(
            channel, operations, describe, objects.make, serves_exports_only=True
        )

    def load(self, code: str) -> None:
        """Run the row's prompt here, and the prompt with the code in the other process."""
        tests, entry = self._tests, str(self._tests["entry"])
        if tests["prompt"]:
            exec(compile(tests["prompt"], "<prompt>", "exec"), self._names)
        own = set(self._names) - {root_of(entry)}
        shared = {
            name: one
            for name, one in self._names.items()
            if isinstance(one, type) and one.__module__ == "tests" and name in own
        }
        self._calls.shared.update(shared)
        self._channel.send({"prompt": tests["prompt"], "code": code})
        wanted = [name for name in tests.get("wanted", ()) if name not in own]
        reply = self._calls.request("load", None, wanted, entry, sorted(shared))
        defined, self._entry = reply
        # The other process may define any names: only the requested ones are accepted.
        found = {name: defined[name] for name in wanted if name in defined}
        self._names.update(found)
        module = types.ModuleType("solution")
        module.__dict__.update(found)
        sys.modules["solution"] = module

    def program(self) -> None:
        """Run tests that are a program."""
        exec(compile(self._tests["setup"], "<setup>", "exec"), self._names)
        text = self._tests["program"]
        linecache.cache[FILE] = (len(text), None, text.splitlines(True), FILE)
        exec(compile(text, FILE, "exec"), self._names)
        made = {
            name: one
            for name, one in self._names.items()
            if getattr(one, "__module__", None) == "tests"
        }
        function = made.get("check")
        if isinstance(function, types.FunctionType) and self._tests["entry"]:
            function(self._entry)
            return
        for name, one in made.items():
            if isinstance(one, type) and issubclass(one, unittest.TestCase):
                _run_cases(one)
            elif name.startswith("test") and _takes_nothing(one):
                one()

    def calls_of_a_table(self) -> None:
        """Call the entry point with each case's arguments."""
        for number, (given, named, expected, is_of_apps) in enumerate(self._tests["cases"], 1):
            try:
                found = self._entry(*copy.deepcopy(given), **copy.deepcopy(named))
            except Exception as error:  # noqa: BLE001  tested code may raise anything
                raise TestFailedError(f"test {number}: {_error_line(error)}") from None
            is_wrapped = is_of_apps and isinstance(expected, list) and expected
            if _equal(found, expected) or (is_wrapped and _equal(found, expected[0])):
                continue
            raise TestFailedError(
                f"test {number}: {self._tests['entry']}({_shown(given)}) gives {_shown(found)}, "
                f"not {_shown(expected)}"
            )


def _takes_nothing(value: Any) -> bool:
    return isinstance(value, types.FunctionType) and value.__code__.co_argcount == 0


def _run_cases(kind: type[unittest.TestCase]) -> None:
    cases = unittest.defaultTestLoader.loadTestsFromTestCase(kind)
    result = unittest.TextTestRunner(io.StringIO()).run(cases)
    for case, trace in [*result.errors, *result.failures]:
        raise TestFailedError(f"{case.id()}: {trace.strip().splitlines()[-1]}"[:LINE_CHARS])


def _equal(found: Any, expected: Any) -> bool:
    """Return whether a result equals the value expected in JSON, in which tuples are lists."""
    if issubclass(type(found), Proxy):
        return False
    if hasattr(found, "tolist"):
        found = found.tolist()
    if isinstance(found, list | tuple) and isinstance(expected, list):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(_equal(one, other) for one, other in pairs)
    if isinstance(found, dict) and isinstance(expected, dict):
        by_text = {str(key): value for key, value in found.items()}
        return by_text.keys() == expected.keys() and all(
            _equal(by_text[key], value) for key, value in expected.items()
        )
    if type(expected) is float and type(found) in (int, float):
        return math.isclose(found, expected, rel_tol=_CLOSE, abs_tol=_CLOSE)
    return bool(found == expected)


def _shown(value: Any) -> str:
    if issubclass(type(value), Proxy):
        return f"an object of {value._shoal_handle.name!r}"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  such as a number that is too long
        text = type(value).__name__
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _error_line(error: BaseException) -> str:
    """Return one line about an error, with the test that raised it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    what = line_of(error)
    if line is None:
        return what[:LINE_CHARS]
    text = linecache.getline(FILE, line).strip()
    return f"{what}: {text[: 2 * _SHOWN_CHARS]}"[:LINE_CHARS]

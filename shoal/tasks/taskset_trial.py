"""Runs a taskset's rewards on a few completions before a task file is written.

Access to files, the network and processes is refused with the name of the reward. The returned
values give the range of the sum.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import functools
import io
import site
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

from shoal.tasks.taskset_checks import NOT_HERE
from shoal.tasks.taskset_copy import Sources, first_line
from shoal_tasks.errors import FamilyError

_TRIED_ROWS: Final = 16
_MAX_FIELD_CHARS: Final = 4096
_LIBRARIES: Final = tuple({sys.prefix, sys.base_prefix, *site.getsitepackages()})
_READ_BEFORE: Final = (
    "a reward cannot read files; read them in load(), and store what it needs in the task's data"
)


class _OutsideError(BaseException):
    """Raised for access outside the process. Not an Exception, so that no reward catches it."""


@dataclass(slots=True)
class Trial:
    """Observations while rewards run."""

    where: str
    running: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    scores: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Each score with its weight, by reward."""

    def refuse(self, what: str) -> Callable[..., Any]:
        """Return a function that records and stops the reward that calls it."""

        def outside(*_given: Any, **_named: Any) -> Any:
            self.refused.append(f"{self.names()} needs {what}, {NOT_HERE}")
            raise _OutsideError

        return outside

    def opener(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return `open` for files of libraries only."""

        def opened(file: Any, *given: Any, **named: Any) -> Any:
            if isinstance(file, int) or str(Path(file).absolute()).startswith(_LIBRARIES):
                return real(file, *given, **named)
            self.refused.append(f"{self.names()} opens {Path(file).name!r}: {_READ_BEFORE}")
            raise _OutsideError

        return opened

    def names(self) -> str:
        """Return the names of the running rewards."""
        names = " or ".join(sorted(set(self.running))) or "the module"
        return f"{names} of {self.where}"

    def named(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a reward that records that it is running, and which one failed."""
        name = f"{kind} {function.__name__!r}"

        @functools.wraps(function)
        async def reward(*given: Any, **named: Any) -> Any:
            self.running.append(name)
            found = await function(*given, **named)
            self.running.remove(name)
            return found

        return reward

    def reward_range(self) -> list[float]:
        """Return the range of the sum; each reward counts as 0 to 1, or as the values seen."""
        low = high = 0.0
        for seen in self.scores.values():
            products = [score * weight for score, weight in seen] + [seen[0][1], 0.0]
            low, high = low + min(products), high + max(products)
        return [low, high]


def try_rewards(where: str, text: str, rows: Sequence[Any], sources: Sources) -> Trial:
    """Score a few completions of some rows with a reward file that is not written yet.

    Raises `FamilyError`: a reward needs what shoal does not support, or raises.
    """
    trial = Trial(where)
    step = max(1, len(rows) // _TRIED_ROWS)
    with _modules_restored(sources), _outside_refused(trial):
        scope: dict[str, Any] = {"__name__": "shoal_taskset_reward"}
        try:
            exec(compile(text, "reward.py", "exec", dont_inherit=True), scope)
        except _OutsideError:
            raise FamilyError(trial.refused[0]) from None
        except Exception as error:  # noqa: BLE001  the program of a user
            raise FamilyError(f"cannot copy {where}: {first_line(error)}") from None
        _watch(trial, scope)
        for row in rows[::step][:_TRIED_ROWS]:
            for completion in _completions(row):
                _score(trial, scope["reward"], row["task"], completion)
    return trial


def _score(trial: Trial, reward: Callable[..., Any], row: Any, completion: str) -> None:
    trial.running.clear()
    why = ""
    try:
        asyncio.run(reward(completions=[completion], task=[row]))
    except _OutsideError:
        pass
    except Exception as error:  # noqa: BLE001  the program of a user
        why = str(error).partition("\n")[0]
    if trial.refused:
        raise FamilyError(trial.refused[0])
    if why:
        raise FamilyError(f"{trial.names()} raised for {completion[:40]!r}: {why}")


def _watch(trial: Trial, scope: dict[str, Any]) -> None:
    """Make the copy's rewards report to a trial."""
    task_type, trace_type = scope["task_type"], scope["Trace"]
    hooks, record = task_type.hooks, trace_type.record_reward

    def watched(task: Any, kind: str) -> list[Any]:
        return [trial.named(kind, function) for function in hooks(task, kind)]

    def recorded(trace: Any, name: str, value: float, weight: float = 1.0) -> None:
        trial.scores.setdefault(name, []).append((float(value), float(weight)))
        record(trace, name, value, weight)

    task_type.hooks, trace_type.record_reward = watched, recorded


def _completions(row: Any) -> Iterator[str]:
    yield from ("", "1", row["question"])
    for value in row["task"].values():
        if isinstance(value, str | int | float) and len(str(value)) <= _MAX_FIELD_CHARS:
            yield str(value)


@contextlib.contextmanager
def _modules_restored(sources: Sources) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in sources}
    try:
        yield
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


@contextlib.contextmanager
def _outside_refused(trial: Trial) -> Iterator[None]:
    from verifiers.v1.judge import Judge

    with contextlib.ExitStack() as stack:
        for owner, name, what in (
            (Judge, "complete", "a judge model"),
            (socket.socket, "connect", "the network"),
            (socket, "getaddrinfo", "the network"),
            (subprocess, "Popen", "a process"),
        ):
            stack.enter_context(mock.patch.object(owner, name, trial.refuse(what)))
        for owner in (builtins, io):
            stack.enter_context(mock.patch.object(owner, "open", trial.opener(open)))
        yield

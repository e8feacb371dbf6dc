"""One reward function in TRL's form: its arguments, and the call. For the worker process only.

    def reward(prompts, completions, completion_ids, **columns) -> list[float | None]: ...

The function receives all completions of a group. Every receiver must pass the same arguments, so
nothing that differs between nodes is passed: token ids are the completion's UTF-8 bytes, and TRL's
`trainer_state` may be a parameter but has no attributes.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from shoal_tasks.rows import TaskRow
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.event_loop import run_awaitable, use_time_only_loops
from shoal_tasks.worker.reward_values import SingleNumberError, read_values
from shoal_tasks.worker.user_code import UserCodeError, load_attribute, run_watched

RESERVED: Final = (
    *("prompts", "completions", "completion_ids"),
    *("trainer_state", "log_extra", "log_metric", "environments"),
)
"""Names of TRL's arguments. A column of the data with such a name is not passed."""
_STATE: Final = "trainer_state"
_ENVIRONMENTS: Final = "environments"
_LOGGERS: Final = ("log_extra", "log_metric")


class Form(NamedTuple):
    """The form of a function's prompts and completions: texts, or lists of chat messages."""

    prompts: bool = False
    """True for lists of messages."""
    completions: bool = False
    is_alone: bool = False
    """True for one completion per call: the function returns one number whatever the group size."""


class SingleScoreError(UserCodeError):
    """The function returned one number for a whole group."""


FORMS: Final = (Form(), Form(True, True), Form(True, False), Form(False, True))
"""All forms, in order of preference."""


class RewardFunction:
    """One function of a user's file."""

    def __init__(
        self, spec: FamilySpec, source: bytes, path: str, name: str, digest: object,
        guard: AuditGuard,
    ) -> None:  # fmt: skip
        """Run the file. Call inside the sandbox. Raises `UserCodeError`, `FamilyError`."""
        self.path = path
        self.form = Form()
        """The form of prompts and completions, which the trial determines."""
        self.read: set[str] | None = None
        """During the trial: the arguments whose messages were read."""
        self._guard = guard
        self._system = spec.system
        if b"async" in source:
            use_time_only_loops()
        function = load_attribute(spec, source, path, digest, name, guard)
        if not callable(function):
            raise UserCodeError(f"{path} has no function {name!r}")
        self._function: Callable[..., Any] = function
        self._takes = _parameters(function)
        if _needs(function, _ENVIRONMENTS):
            raise UserCodeError(
                f"{path}: {name} requires `environments`, which only TRL has: "
                'write a game as a task file with environment = "FILE.py"'
            )
        self.mentions_messages = _mentions_messages(source)
        """True if the file contains a key of chat messages, such as ``content``."""

    @property
    def forms(self) -> list[Form]:
        """The forms that make a difference, given the parameters."""
        takes_prompts, takes_completions = self.takes("prompts"), self.takes("completions")
        return [
            form
            for form in FORMS
            if (takes_prompts or not form.prompts) and (takes_completions or not form.completions)
        ]

    def takes(self, name: str) -> bool:
        """Return whether the function has a parameter of this name, or takes any."""
        return self._takes is None or name in self._takes

    def values(
        self, row: TaskRow, texts: Sequence[str], form: Form | None = None
    ) -> list[float | None]:
        """Return the rewards of a group's completions; None where the function gives none.

        Raises:
            UserCodeError: the function raised, was refused an operation, or did not return a list
                with one number for each completion.
        """
        form = self.form if form is None else form
        if form.is_alone:
            alone = form._replace(is_alone=False)
            return [value for text in texts for value in self.values(row, [text], alone)]
        given = self._given(row, texts, form)
        return run_watched(self._guard, self.path, self._called, given, len(texts))

    def _called(self, given: dict[str, Any], count: int) -> list[float | None]:
        returned = self._function(**given)
        if inspect.isawaitable(returned):
            returned = run_awaitable(returned)
        try:
            return read_values(returned, count)
        except SingleNumberError as error:
            raise SingleScoreError(f"{self.path}: {error}") from None
        except ValueError as error:
            raise UserCodeError(f"{self.path}: {error}") from None

    def _given(self, row: TaskRow, texts: Sequence[str], form: Form) -> dict[str, Any]:
        given: dict[str, Any] = {
            # Each completion gets its own copy, because in TRL each has its own row.
            name: [copy.deepcopy(value) for _ in texts]
            for name, value in row.columns.items()
            if name not in RESERVED and self.takes(name)
        }
        if self.takes("prompts"):
            given["prompts"] = [self._prompt(row, form) for _ in texts]
        if self.takes("completions"):
            given["completions"] = [self._completion(text, form) for text in texts]
        if self.takes("completion_ids"):
            given["completion_ids"] = [list(text.encode(errors="surrogatepass")) for text in texts]
        if self.takes(_STATE):
            given[_STATE] = _NoState(self._guard)
        given |= {name: _ignore_call for name in _LOGGERS if self.takes(name)}
        return given

    def _prompt(self, row: TaskRow, form: Form) -> Any:
        if not form.prompts:
            return row.question
        system = [self._message("prompts", "system", self._system)] if self._system else []
        return [*system, self._message("prompts", "user", row.question)]

    def _completion(self, text: str, form: Form) -> Any:
        return [self._message("completions", "assistant", text)] if form.completions else text

    def _message(self, argument: str, role: str, text: str) -> dict[str, str]:
        if self.read is None:
            return {"role": role, "content": text}
        return _WatchedMessage(functools.partial(self.read.add, argument), role=role, content=text)


class _WatchedMessage(dict[str, str]):
    """A message that reports when it is read. A function written for texts never reads it."""

    def __init__(self, on_read: Callable[[], None], **items: str) -> None:
        super().__init__(**items)
        self._on_read = on_read

    def __getitem__(self, key: str) -> str:
        self._on_read()
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._on_read()
        return super().get(key, default)

    def values(self) -> Any:
        self._on_read()
        return super().values()

    def items(self) -> Any:
        self._on_read()
        return super().items()

    def __deepcopy__(self, _memory: object) -> _WatchedMessage:
        return _WatchedMessage(self._on_read, **self)


class _NoState:
    """A stand-in for TRL's `trainer_state`. Reading an attribute is an error."""

    def __init__(self, guard: AuditGuard) -> None:
        object.__setattr__(self, "_guard", guard)

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("__"):
            guard: AuditGuard = object.__getattribute__(self, "_guard")
            guard.record(f"trainer_state.{name}, which differs between nodes")
        raise AttributeError(f"trainer_state has no {name} here: it differs between nodes")


def _ignore_call(*_values: Any, **_named: Any) -> None:
    """Stand in for TRL's `log_extra` and `log_metric`: nothing is logged."""


def _parameters(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the parameter names; None if the function takes any name (`**columns`)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return None
    return frozenset(one.name for one in parameters)


def _needs(function: Callable[..., Any], name: str) -> bool:
    try:
        found = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):
        return False
    return found is not None and found.default is inspect.Parameter.empty


def _mentions_messages(source: bytes) -> bool:
    nodes = ast.walk(ast.parse(source))
    return any(isinstance(one, ast.Constant) and one.value in ("content", "role") for one in nodes)

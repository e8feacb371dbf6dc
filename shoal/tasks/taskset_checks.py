"""Checks a taskset of verifiers: refuses what shoal does not support, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from shoal_tasks.errors import FamilyError

NOT_HERE: Final = "which shoal does not support: a reward gets only the question and the answer"
_HOOKS: Final = ("setup", "finalize")


def check_taskset(where: str, taskset: Any, tasks: Sequence[Any], package: Any) -> None:
    """Raise `FamilyError` for a taskset that cannot run, in one line with the reason."""
    for reason in _reasons(where, taskset, tasks, package):
        raise FamilyError(reason)


def hooks_of(task: Any) -> tuple[str, ...]:
    """Return which of `setup` and `finalize` a task overrides, in this order."""
    vf = _v1()
    return tuple(name for name in _HOOKS if getattr(type(task), name) is not getattr(vf.Task, name))


def _reasons(where: str, taskset: Any, tasks: Sequence[Any], package: Any) -> Iterator[str]:
    task = tasks[0]
    yield from _unsupported_parts(where, taskset, task, package)
    if len({type(one) for one in tasks}) > 1:
        yield f"{where} has tasks of several classes; a taskset has one"
    if any(one.config != task.config for one in tasks):
        yield f"{where} gives its tasks different configurations; one file has one"
    for judge in task.config.judges:
        yield f"judge {judge.name or judge.id!r} of {where} needs a model, {NOT_HERE}"
    rewards = task.hooks("reward")
    for kind, functions in (("reward", rewards), ("metric", task.hooks("metric"))):
        for function in functions:
            what = f"{kind} {function.__name__!r} of {where}"
            yield from _unsupported_parameters(what, function)
    for name in hooks_of(task):
        yield from _unsupported_parameters(f"{name} of {where}", getattr(task, name))
    if not any(getattr(one, "_vf_weight", 1.0) for one in rewards):
        yield f"{where} has no reward with a weight (@vf.reward); a metric has none"


def _unsupported_parameters(what: str, function: Callable[..., Any]) -> Iterator[str]:
    parameters = inspect.signature(function).parameters
    known = {"task", "trace", "runtime"}
    for name, one in parameters.items():
        is_needed = one.default is inspect.Parameter.empty and one.kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        )
        if is_needed and name == "runtime":
            yield f"{what} needs a runtime, {NOT_HERE}"
        elif is_needed and name not in known:
            yield f"{what} takes {name!r}, which verifiers does not pass: task, trace, runtime"
    inner = inspect.unwrap(function)
    if not inspect.iscoroutinefunction(inner):
        yield f"{what} is no `async def`, and verifiers awaits it"


def _unsupported_parts(where: str, taskset: Any, task: Any, package: Any) -> Iterator[str]:
    """Yield unsupported parts of a task: tools, containers, several turns."""
    vf = _v1()
    for kind, parts in (
        ("tool server", (*taskset.toolsets(taskset.config), *task.toolsets(task.config))),
        ("interception", _intercepts(task)),
    ):
        for part in parts:
            name = getattr(part, "__name__", type(part).__name__)
            yield f"{where} has the {kind} {name}, and shoal generates once, without tools"
    if task.NEEDS_CONTAINER or task.data.image or task.data.skills or task.data.artifacts:
        yield f"{where} works in a container, {NOT_HERE}"
    for name in getattr(package, "__all__", ()):
        part = getattr(package, name, None)
        if isinstance(part, type) and issubclass(part, (vf.Env, vf.Harness)):
            yield (
                f"{where} has its own {part.__mro__[1].__name__} {name}, and shoal generates once"
            )


def _intercepts(task: Any) -> list[Any]:
    from verifiers.v1.utils.decorators import discover_decorated

    return list(discover_decorated(task, "intercept"))


def _v1() -> Any:
    import verifiers.v1

    return verifiers.v1

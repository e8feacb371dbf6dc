"""A taskset of `verifiers` as a file of rows and a reward, for `shoal tasks new verifiers:…`."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from shoal.tasks.taskset_checks import check_taskset, hooks_of
from shoal.tasks.taskset_copy import copied_modules, first_line, is_old_style, reward_file
from shoal.tasks.taskset_trial import try_rewards
from shoal_base.extras import how_to_get, is_installed
from shoal_base.files import create_atomically
from shoal_tasks.answers import MAX_ANSWER_CHARS
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import number_text

VERIFIERS: Final = "verifiers:"
"""Prefix of a taskset's name: `verifiers:MODULE.CLASS`, or the name of its package."""


def write_files(source: str, name: str, folder: Path) -> Mapping[str, Any]:
    """Write rows and reward next to the task file; return the keys of that file.

    Raises `FamilyError` for an unknown or unsupported taskset, in one line; OSError.
    """
    named = source.removeprefix(VERIFIERS)
    if not is_installed("verifiers"):
        raise FamilyError(
            f"{source} needs verifiers, which is not installed: {how_to_get('verifiers')}"
        )
    if not is_installed("verifiers.v1"):
        raise FamilyError(f"{source} needs a newer verifiers: {how_to_get('verifiers')}")
    loaded_before = frozenset(sys.modules)
    with _here_importable():
        module, taskset = _found(source, named)
        where = f"{module.__name__}.{type(taskset).__name__}"
        tasks = _tasks(where, taskset)
        check_taskset(where, taskset, tasks, sys.modules[module.__name__.partition(".")[0]])
        rows, system = _rows(where, tasks)
        sources = copied_modules(sys.modules[type(taskset).__module__], loaded_before)
        reward = reward_file(where, source, tasks[0], hooks_of(tasks[0]), sources)
        trial = try_rewards(where, reward, rows, sources)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    create_atomically(folder / f"{name}.jsonl", lines.encode(), mode=0o644)
    create_atomically(folder / f"{name}_reward.py", reward.encode(), mode=0o644)
    return {
        "rows": str(folder / f"{name}.jsonl"),
        **({"system": system} if system else {}),
        "reward": f"{name}_reward.py",
        "reward_range": trial.reward_range(),
    }


@contextlib.contextmanager
def _here_importable() -> Iterator[None]:
    """Make modules of the current folder importable, as `python -m` does."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


def _found(source: str, named: str) -> tuple[ModuleType, Any]:
    """Return a taskset with its default configuration, and its module.

    Raises `FamilyError`: there is none, or it has the interface of another version of verifiers.
    """
    import verifiers.v1 as vf
    from verifiers.v1.utils.generic import concrete_type
    from verifiers.v1.utils.loaders import taskset_class

    path, _, last = named.rpartition(".")
    if not named:
        raise FamilyError(f"{source!r} is not verifiers:MODULE.CLASS")
    is_class = bool(path) and last[:1].isupper()
    module_name = path if is_class else named.rsplit("/", 1)[-1].split("@", 1)[0].replace("-", "_")
    try:
        if is_class:
            kind = getattr(importlib.import_module(module_name), last, None)
        else:
            kind = taskset_class(named)
    except Exception as error:  # noqa: BLE001  the program of a user
        if is_old_style(module_name):
            raise FamilyError(_OLD.format(source, module_name)) from None
        raise FamilyError(_missing(source, module_name, error)) from None
    if kind is None or not (isinstance(kind, type) and issubclass(kind, vf.Taskset)):
        if is_old_style(module_name):
            raise FamilyError(_OLD.format(source, module_name))
        there = _tasksets(sys.modules[module_name], vf.Taskset)
        has = f"it has {there}" if there else "it has none"
        raise FamilyError(f"{source}: {last} is not a taskset (vf.Taskset) of {module_name}; {has}")
    module = sys.modules.get(module_name) or sys.modules[kind.__module__]
    config = concrete_type(kind, vf.TasksetConfig, origin=vf.Taskset) or vf.TasksetConfig
    try:
        return module, kind(config())
    except Exception as error:  # noqa: BLE001  the program of a user
        raise FamilyError(f"cannot create {source} without settings: {first_line(error)}") from None


_OLD: Final = (
    "{0}: {1} has load_environment(), the older interface, which verifiers 0.4 itself no longer "
    "has; supported are tasksets of verifiers.v1 (a class of vf.Taskset, as vf-init writes one)"
)


def _missing(source: str, module: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name in (module, module.partition(".")[0]):
        return (
            f"cannot find {source}: no module {module} in the current folder or among the "
            "installed packages"
        )
    return f"cannot read {source}: {first_line(error)}"


def _tasksets(module: ModuleType, base: type) -> str:
    return ", ".join(
        name
        for name, one in vars(module).items()
        if isinstance(one, type) and issubclass(one, base) and one is not base
    )


def _tasks(where: str, taskset: Any) -> list[Any]:
    if not taskset.bounded:
        raise FamilyError(f"{where} has endless tasks (INFINITE), and rows must end")
    try:
        tasks = list(taskset)
    except Exception as error:  # noqa: BLE001  the program of a user
        raise FamilyError(f"cannot read {where}: {first_line(error)}") from None
    if not tasks:
        raise FamilyError(f"{where} has no tasks")
    return tasks


def _rows(where: str, tasks: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
    """Return a row for each task, and the system message that all have.

    Different system messages are put before their questions. Raises `FamilyError`: a task is not a
    single question, or changes in JSON.
    """
    rows, messages = [], []
    for number, task in enumerate(tasks):
        messages.append(_messages(f"task {number} of {where}", task.data))
        row = task.data.model_dump(mode="json", exclude=_defaults(task.data))
        try:
            is_same = type(task.data).model_validate(row) == task.data
        except ValueError:
            is_same = False
        if not is_same:
            raise FamilyError(
                f"task {number} of {where} changes when written as JSON and read again"
            )
        rows.append({**_answer(task.data), "task": row})
    if not all("answer" in row for row in rows):
        rows = [{"task": row["task"]} for row in rows]
    systems = {system for system, _ in messages}
    if len(systems) > 1:  # as verifiers does if a harness takes no system message
        messages = [("", "\n\n".join(filter(None, turns))) for turns in messages]
    questions = [question for _, question in messages]
    return [
        {"question": question, **row} for question, row in zip(questions, rows, strict=True)
    ], messages[0][0]


def _answer(data: Any) -> dict[str, str]:
    """Return the column `answer` of a task that has such a field: `tasks lint` tries it."""
    answer = number_text(getattr(data, "answer", None))
    if not isinstance(answer, str) or not 0 < len(answer.strip()) <= MAX_ANSWER_CHARS:
        return {}
    return {"answer": answer}


def _defaults(data: Any) -> set[str]:
    """Return the fields with default values; pydantic would also omit the roles of messages."""
    return {
        name
        for name, one in type(data).model_fields.items()
        if not one.is_required()
        and getattr(data, name) == one.get_default(call_default_factory=True)
    }


def _messages(what: str, data: Any) -> tuple[str, str]:
    """Return the system message and the question of one task. Raises `FamilyError`."""
    if data.prompt is None:
        raise FamilyError(
            f"{what} has no prompt: it begins with a simulated user, which shoal does not have"
        )
    if isinstance(data.prompt, str):
        return data.system_prompt or "", data.prompt
    texts = [(one.role, one.content) for one in data.prompt]
    if data.system_prompt:
        texts.insert(0, ("system", data.system_prompt))
    roles = [role for role, _ in texts]
    if roles not in (["user"], ["system", "user"]):
        turns = ", ".join(roles)
        raise FamilyError(f"{what} is a conversation ({turns}), and shoal supports one question")
    if not all(isinstance(content, str) for _, content in texts):
        raise FamilyError(f"{what} has an image, and shoal supports only text")
    return texts[0][1] if len(texts) > 1 else "", texts[-1][1]

"""A taskset of `verifiers` as a file of rows and a reward, for `shoal tasks new verifiers:…`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shoal_base.extras import how_to_get, is_installed
from shoal_base.files import create_atomically
from shoal_tasks.errors import FamilyError

VERIFIERS: Final = "verifiers:"
"""Prefix of a taskset's name: `verifiers:MODULE.CLASS`."""

_REWARD: Final = '''\
"""The rewards of {module}.{taskset}, a taskset of verifiers. Nodes need the same version of it."""

import verifiers.v1.utils.version, verifiers.v1.utils.loaders  # not imported late: no files there
import verifiers.v1 as vf
from {data_module} import {data}
from {task_module} import {task}
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import TraceTask
from verifiers.v1.types import AssistantMessage, UserMessage


def reward(completions, task):
    data = {data}.model_validate(task[0])
    nodes = [
        MessageNode(parent=None, message=UserMessage(content=data.prompt_text), sampled=False),
        MessageNode(parent=0, message=AssistantMessage(content=completions[0]), sampled=True),
    ]
    made = TraceTask.model_construct(type="{task}", data=data)
    trace = vf.Trace.model_construct(task=made, nodes=nodes)
    total = 0.0
    for function in {task}(data).hooks("reward"):
        try:
            function(task=data, trace=trace).send(None)
        except StopIteration as end:
            total += end.value * function._vf_weight
        else:
            raise RuntimeError("this reward waits for something")
    return [total]
'''
"""Each reward is driven by hand: the sandbox has no event loop."""


def write_files(source: str, name: str, folder: Path) -> Mapping[str, Any]:
    """Write rows and reward beside the task file; return the keys of that file.

    Raises `FamilyError` in one line: no such taskset, or one without single-turn tasks; OSError.
    """
    module, _, taskset = source.removeprefix(VERIFIERS).rpartition(".")
    if not module:
        raise FamilyError(f"{source!r} is not verifiers:MODULE.CLASS")
    if not is_installed("verifiers"):
        raise FamilyError(
            f"{source} needs verifiers, which is not installed: {how_to_get('verifiers')}"
        )
    try:
        vf: Any = importlib.import_module("verifiers.v1")
        tasks = list(getattr(importlib.import_module(module), taskset)(vf.TasksetConfig()))
        rows = [
            {
                "question": one.data.prompt_text,
                "task": one.data.model_dump(mode="json", exclude_none=True),
            }
            for one in tasks
        ]
        hooks = tasks[0].hooks("reward")
    except Exception as error:  # noqa: BLE001  somebody's program
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FamilyError(f"cannot read {source}: {why}") from None
    weights = [float(one._vf_weight) for one in hooks]
    kind, data = type(tasks[0]), type(tasks[0].data)
    reward = _REWARD.format(
        module=module,
        taskset=taskset,
        data_module=data.__module__,
        data=data.__name__,
        task_module=kind.__module__,
        task=kind.__name__,
    )
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    create_atomically(folder / f"{name}.jsonl", lines.encode(), mode=0o644)
    create_atomically(folder / f"{name}_reward.py", reward.encode(), mode=0o644)
    low, high = (sum(one for one in weights if one * sign > 0) for sign in (-1, 1))
    return {
        "rows": str(folder / f"{name}.jsonl"),
        "reward": f"{name}_reward.py",
        "reward_range": [low, high],
    }

"""The reward file that `shoal tasks new verifiers:…` writes: verifiers' own scoring, called once.

`taskset_copy` replaces each name in capitals between `@`. The file holds a copy of the
taskset's source, so that a family's digest covers it, and calls `Task.score` as `vf-replay` does.
"""

from __future__ import annotations

from typing import Final

TEMPLATE: Final = '''\
"""The rewards of @WHERE@, a taskset of verifiers @VERSION@, as verifiers computes them.

Written by `shoal tasks new @SOURCE@`. SOURCES, at the end, is a copy of the taskset's modules: a
peer needs only this file and verifiers @VERSION@. After a change to them, write it again.
"""

import importlib
import importlib.abc
import importlib.util
import sys
import traceback

@IMPORTS@
import verifiers
import verifiers.v1 as vf
import verifiers.v1.utils.loaders
from verifiers.v1.graph import MessageNode
from verifiers.v1.state import state_cls
from verifiers.v1.trace import Timing
from verifiers.v1.types import AssistantMessage, SystemMessage, UserMessage
from verifiers.v1.utils.decorators import invoke

VERSION = "@VERSION@"
TASK, DATA, CONFIG_TYPE = @CLASSES@
CONFIG = @CONFIG@
UNKNOWN = {
    *("num_input_tokens", "num_output_tokens", "num_total_tokens", "usage"),
    *("is_truncated", "timing"),
}


async def reward(completions, task):
    """Return the reward of each completion: the weighted sum that verifiers computes."""
    return [await score(row, text) for row, text in zip(task, completions)]


async def score(row, text):
    """Return the sum for one completion; an error names the line of the copy that raised it."""
    try:
        return (await scored_trace(row, text)).reward
    except Exception as error:
        cause = error.__cause__ or error
        files = {file for file, _, _ in SOURCES.values()}
        places = [
            f"{frame.filename}, line {frame.lineno}: "
            for frame in traceback.extract_tb(cause.__traceback__)
            if frame.filename in files
        ]
        where = places[-1] if places else ""
        raise RuntimeError(f"{where}{type(cause).__name__}: {cause}") from None


async def scored_trace(row, text):
    data = data_type.model_validate(row)
    task = task_type(data, config)
    messages = [SystemMessage(content=data.system_prompt)] if data.system_prompt else []
    is_text = isinstance(data.prompt, str)
    messages += [UserMessage(content=data.prompt)] if is_text else data.prompt
    nodes = [
        MessageNode(parent=index - 1 if index else None, message=message, timestamp=0.0)
        for index, message in enumerate(messages)
    ]
    answer = AssistantMessage(content=text)
    parent = len(messages) - 1
    nodes.append(MessageNode(parent=parent, message=answer, sampled=True, timestamp=0.0))
    trace = Trace(
        id="shoal",
        verifiers=vf.VersionInfo(version=VERSION),
        task=vf.TraceTask(type=task_type.__name__, data=data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=nodes,
        state=state_cls(task_type)(),
        timing=Timing(start=0.0),
    )
    for hook in @HOOKS@:
        await invoke(getattr(task, hook), {"trace": trace})
    await task.score(trace)
    return trace


class Trace(vf.Trace):
    """A trace that raises for values unknown to shoal, which in verifiers would be zero."""

    def __getattribute__(self, name):
        if name in UNKNOWN:
            raise RuntimeError(f"a completion of shoal has no {name}: only its text is known")
        return super().__getattribute__(name)


class Copies(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules of SOURCES from this file."""

    def find_spec(self, name, path=None, target=None):
        if name not in SOURCES:
            return None
        file, is_package, _ = SOURCES[name]
        return importlib.util.spec_from_loader(name, self, origin=file, is_package=is_package)

    def exec_module(self, module):
        file, _, source = SOURCES[module.__name__]
        # Not the name of a file: files next to the module are not copied.
        module.__file__, module.__copied__ = f"(copy)/{file}", source
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)


def load():
    """Import the copies, and return the classes of a task, its data and its configuration."""
    if verifiers.__version__ != VERSION:
        raise ImportError(f"verifiers {VERSION} is needed, {verifiers.__version__} is installed")
    for name, (_, _, source) in SOURCES.items():
        if getattr(sys.modules.pop(name, None), "__copied__", source) != source:
            raise ImportError(f"another task file holds another copy of {name}: write both again")
    finder = Copies()
    sys.meta_path.insert(0, finder)
    try:
        for name in SOURCES:
            importlib.import_module(name)
    except OSError as error:
        raise ImportError(f"the taskset's module reads a file when imported: {error}") from None
    finally:
        sys.meta_path.remove(finder)
    named = (TASK, DATA, CONFIG_TYPE)
    return [getattr(importlib.import_module(module), name) for module, name in named]


# Module: (its file, whether it is a package, its source)
SOURCES = @SOURCES@

task_type, data_type, config_type = load()
config = config_type.model_validate(CONFIG)
'''

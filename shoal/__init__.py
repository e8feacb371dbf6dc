"""The face of the program: `shoal`, its commands, and its Python API.

    import shoal

    with shoal.connect("shoal1…") as swarm:
        swarm.publish([shoal.Group(question, answers)])

The names of the API are imported on first use, so `import shoal` alone is cheap.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any, Final

from shoal_base.children import leave_as_program

if TYPE_CHECKING:
    from shoal.api.groups import Group, LeasedGroup, SwarmError
    from shoal.api.in_thread import AsyncSwarm, aconnect
    from shoal.api.joining import connect
    from shoal.api.run import Run, start
    from shoal.api.swarm import Swarm

leave_as_program()

__all__ = [
    "AsyncSwarm",
    "Group",
    "LeasedGroup",
    "Run",
    "Swarm",
    "SwarmError",
    "aconnect",
    "connect",
    "start",
]

_HOMES: Final = {
    "AsyncSwarm": "shoal.api.in_thread",
    "Group": "shoal.api.groups",
    "LeasedGroup": "shoal.api.groups",
    "Run": "shoal.api.run",
    "Swarm": "shoal.api.swarm",
    "SwarmError": "shoal.api.groups",
    "aconnect": "shoal.api.in_thread",
    "connect": "shoal.api.joining",
    "start": "shoal.api.run",
}
"""The module of each name of the API."""


def __dir__() -> list[str]:
    """Return the names of the API, for a shell's completion."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a name of the API on first use."""
    if name == "__version__":
        return importlib.metadata.version("shoal")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)

"""Imports reasoning_gym without matplotlib, which its dependency cellpylib needs only for plots.

That import took a third of the processor time of a worker's start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

_NAMES: Final = (
    "matplotlib",
    "matplotlib.animation",
    "matplotlib.collections",
    "matplotlib.pyplot",
    "mpl_toolkits",
    "mpl_toolkits.mplot3d",
)
"""Modules that cellpylib imports. If another version imports more, the worker does not start."""


class _Absent(ModuleType):
    def __getattr__(self, name: str) -> ModuleType:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self.__name__}.{name}")


@contextmanager
def stub_plotting() -> Iterator[None]:
    """Replace plotting modules by empty ones for imports in this block; later imports are real."""
    if any(name in sys.modules for name in _NAMES):
        yield
        return
    absent = {name: _Absent(name) for name in _NAMES}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)

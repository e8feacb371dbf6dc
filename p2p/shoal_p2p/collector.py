"""Memory: Python's collector, told what kind of process this is, and what malloc keeps.

By default a full collection comes after some 70,000 new containers and walks everything: in a node
that is hundreds of thousands of objects of modules that never go, several times a second, and was
a fifth of what a delivery cost. What was made before the node runs is left out of it, and the
collector comes for as much as a second's traffic leaves. What has no cycles (nearly all) goes at
once all the same.

What messages took goes back to malloc, which keeps what lies below anything that is still used:
after a storm of them a process would stay as large as it once was. It is asked to give that back.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

import trio

TRIM_SECONDS = 10.0
NEW_CONTAINERS = 50_000
"""New containers, less those gone, between two collections of the young."""


def spare_collector() -> None:
    """Leave out what exists, for good, and collect less often. To be called once, at the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_CONTAINERS)


def malloc_trim() -> Callable[[], object]:
    """Return what gives back to the system the pages that malloc keeps empty; glibc's alone does.

    It takes a tenth of a millisecond where there are none.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: None) if trim is None else lambda: trim(0)


async def give_memory_back() -> None:
    """Trim every `TRIM_SECONDS` until cancelled."""
    trim = malloc_trim()
    while True:
        await trio.sleep(TRIM_SECONDS)
        trim()

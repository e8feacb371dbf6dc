"""Memory that malloc keeps.

What messages took goes back to malloc, which keeps what lies below anything that is still used:
after a storm of them a process would stay as large as it once was. It is asked to give that back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import trio

from shoal_base.waits import LOOK_S


def malloc_trim() -> Callable[[], object]:
    """Return what gives back to the system the pages that malloc keeps empty; glibc's alone does.

    It takes a tenth of a millisecond where there are none.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: None) if trim is None else lambda: trim(0)


async def give_memory_back() -> None:
    """Trim every `LOOK_S` until cancelled."""
    trim = malloc_trim()
    while True:
        await trio.sleep(LOOK_S)
        trim()

"""Runs blocking work outside the event loop, which continues meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import trio

T = TypeVar("T")


THREAD_TURN_S = 0.001
"""Longest time a thread that works in Python may keep the event loop waiting, in seconds. Python's
own 5 ms are added whenever the loop wakes while a large batch is opened in a thread."""


def let_the_loop_in() -> None:
    """Have threads of this process give way to its event loop sooner. To be called at the start."""
    sys.setswitchinterval(THREAD_TURN_S)


class InThread(Protocol):
    """`trio.to_thread.run_sync`, or what stands for it where there are no threads."""

    async def __call__(
        self,
        sync_fn: Callable[..., T],
        *args: Any,
        limiter: trio.CapacityLimiter | None = None,
    ) -> T:
        """Run ``sync_fn(*args)`` and return its result; raises what it raises."""

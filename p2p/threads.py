"""How blocking work leaves the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import trio

T = TypeVar("T")


class InThread(Protocol):
    """`trio.to_thread.run_sync`, or what stands for it where there are no threads."""

    async def __call__(
        self,
        sync_fn: Callable[..., T],
        *args: Any,
        limiter: trio.CapacityLimiter | None = None,
    ) -> T:
        """Run ``sync_fn(*args)`` and return its result; raises what it raises."""

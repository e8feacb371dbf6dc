"""Endings of a process: a signal, or the end of its parent."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from shoal_settings.exits import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from trio_typing import TaskStatus


async def call_on_parent_end(callback: Callable[[], None]) -> None:
    """Call back when standard input ends: however the parent died, its pipe is closed."""
    stream = trio.lowlevel.FdStream(os.dup(0))
    async with stream:
        with contextlib.suppress(trio.BrokenResourceError):
            while await stream.receive_some(4096):
                pass
    callback()


async def call_on_signal(
    callback: Callable[[], None],
    *,
    task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call back on SIGINT or SIGTERM; a second signal ends the process at once."""
    seen = 0
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            seen += 1
            if seen > 1:
                os._exit(EXIT_INTERRUPTED)
            callback()

"""Waiting for a slot: a peer of whom as much is being judged as may be is not read meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import trio

_PAUSE_S = 0.5
"""Waited before it is said that a peer is not read, again and again."""


async def take_slot(slots: trio.Semaphore, waited: Callable[[float], None]) -> None:
    """Acquire a slot; `waited` is told the seconds while there is none."""
    while slots.value == 0:
        asked_at = trio.current_time()
        with trio.move_on_after(_PAUSE_S) as pause:
            await slots.acquire()
        waited(trio.current_time() - asked_at)
        if not pause.cancelled_caught:
            return
    # Not `net.turns.take`: what was taken has its turn, and is paid for, before more is read.
    await slots.acquire()

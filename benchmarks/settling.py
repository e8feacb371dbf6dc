"""When a benchmark's swarm has done all that it had to do: late is not lost.

A fixed wait calls lost what a busy machine has only not come to.  Here the loop itself is asked: it
is calm when a short sleep ends on time, for a loop with work left wakes late. What has not come
after some hundred calm sleeps in a row, with nothing new and nothing in a queue, never will.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

LATE_S = 30.0
"""From publication to arrival; what takes longer came late."""
_POLL_S = 0.05
_ON_TIME_S = 0.05
_CALM_POLLS = 200
_LIMIT_S = 600.0


async def settle(*, due: int, arrived: Callable[[], int], queued: Callable[[], int]) -> bool:
    """Wait until all is there, or the rest is lost; False if neither was sure in ten minutes."""
    calm, seen = 0, -1
    with trio.move_on_after(_LIMIT_S):
        while (found := arrived()) < due and calm < _CALM_POLLS:
            begun = trio.current_time()
            await trio.sleep(_POLL_S)
            on_time = trio.current_time() - begun < _POLL_S + _ON_TIME_S
            calm = calm + 1 if on_time and found == seen and not queued() else 0
            seen = found
        return True
    return False

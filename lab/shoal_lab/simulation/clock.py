"""Virtual time, moved by hand, and Trio's scheduling from a seed."""

from __future__ import annotations

import math
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio
import trio.testing

T = TypeVar("T")

GRAINS_A_SECOND = 100
"""Events within one grain share a turn of Trio's loop, which costs more than they do."""

_TRIO: Any = sys.modules["trio._core._run"]


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Let Trio schedule by the seed, as its documentation offers to test libraries."""
    allowed, state = _TRIO._ALLOW_DETERMINISTIC_SCHEDULING, _TRIO._r.getstate()
    _TRIO._ALLOW_DETERMINISTIC_SCHEDULING = True
    _TRIO._r.seed(seed)
    try:
        yield
    finally:
        _TRIO._ALLOW_DETERMINISTIC_SCHEDULING = allowed
        _TRIO._r.setstate(state)


def jumping_clock() -> trio.testing.MockClock:
    """Return a clock that stands still, and jumps to the next deadline when every task waits.

    Like `MockClock(autojump_threshold=0)`, with two differences. The time, which every message
    reads about ten times, is stored instead of computed from the real one. And it advances in
    grains: events due within one happen at its end, in one turn of Trio's loop, as on a machine
    that wakes a little late.
    """
    clock = trio.testing.MockClock(autojump_threshold=0)
    inside: Any = clock

    def jump() -> None:
        next_s = _TRIO.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
        if inside._virtual_base < next_s < math.inf:
            inside._virtual_base = max(
                next_s, math.ceil(next_s * GRAINS_A_SECOND) / GRAINS_A_SECOND
            )

    inside.current_time = lambda: inside._virtual_base
    inside._autojump = jump
    return clock


async def pass_time(clock: trio.testing.MockClock, seconds: float) -> None:
    """Let virtual time pass; events happen at their deadlines."""
    until = trio.current_time() + seconds
    while True:
        await trio.testing.wait_all_tasks_blocked()
        next_s = trio.lowlevel.current_statistics().seconds_to_next_deadline
        left_s = until - trio.current_time()
        if next_s > left_s:
            clock.jump(max(0.0, left_s))
            return
        if next_s > 0:
            clock.jump(next_s)


def run_now(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, from synchronous code.

    Raises:
        RuntimeError: it waits.
    """
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    call.close()
    raise RuntimeError("the call waits for something")

"""Virtual time, moved by hand, and Trio's scheduling from a seed."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio
import trio.testing

T = TypeVar("T")

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


async def pass_time(clock: trio.testing.MockClock, seconds: float) -> None:
    """Let virtual time pass: everything that is due happens when it is due."""
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
    """Return the result of a call that waits for nothing, where nothing can be awaited.

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

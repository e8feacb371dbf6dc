"""Where time goes in a running program: functions are wrapped, and each counts its own time only.

A wrapped function called by another wrapped one takes its time out of the caller's, so all spans
add up to the time between `start` and `stop`, the rest included. For one thread.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from time import perf_counter, process_time
from typing import Any

REST = "everything else"


class Spans:
    """Wall seconds, CPU seconds of this process, and calls, by name."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.cpu_seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)
        self._names = [REST]
        self._since = perf_counter(), process_time()

    def start(self) -> None:
        """Count from now on."""
        self._turn()
        self.seconds.clear()
        self.cpu_seconds.clear()
        self.calls.clear()

    def stop(self) -> dict[str, dict[str, float]]:
        """Return what was found, the longest first."""
        self._turn()
        order = sorted(self.seconds, key=lambda name: -self.seconds[name])
        return {
            name: {
                "seconds": self.seconds[name],
                "cpu_seconds": self.cpu_seconds[name],
                "calls": self.calls[name],
            }
            for name in order
        }

    def watch(self, name: str, owner: Any, attribute: str) -> None:
        """Wrap ``owner.attribute``, a function, method or property-free class member."""
        function = getattr(owner, attribute)

        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            self._turn()
            self._names.append(name)
            self.calls[name] += 1
            try:
                return function(*arguments, **options)
            finally:
                self._turn()
                self._names.pop()

        setattr(owner, attribute, timed)

    def _turn(self) -> None:
        now = perf_counter(), process_time()
        self.seconds[self._names[-1]] += now[0] - self._since[0]
        self.cpu_seconds[self._names[-1]] += now[1] - self._since[1]
        self._since = now

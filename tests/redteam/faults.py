"""Log lines that an attack must not cause."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


class _Listener(logging.Handler):
    def __init__(self, level: int, is_fault: Callable[[logging.LogRecord], object]) -> None:
        super().__init__(level)
        self._is_fault = is_fault
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Store the record if it is a fault."""
        if self._is_fault(record):
            whole = logging.Formatter().format(record)
            self.found.append(f"{record.name}: {whole[-1500:]}")


@contextmanager
def faults(
    names: Sequence[str], level: int, is_fault: Callable[[logging.LogRecord], object]
) -> Iterator[list[str]]:
    """Collect faults that these loggers log from `level` on, without terminal output."""
    listener, logs = _Listener(level, is_fault), [logging.getLogger(name) for name in names]
    before = [(log.level, log.propagate) for log in logs]
    for log in logs:
        log.addHandler(listener)
        log.setLevel(level)
        log.propagate = False
    try:
        yield listener.found
    finally:
        for log, (level_before, propagated) in zip(logs, before, strict=True):
            log.removeHandler(listener)
            log.setLevel(level_before)
            log.propagate = propagated

"""Limits how many lines of one kind a log takes in a minute, since strangers cause lines.

A kind is the text of a line before names and numbers are put in. Names are free, so a line for each
name that misbehaves is as many lines as somebody likes, and they push out all others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shoal_base.bounded import BoundedDict
from shoal_base.waits import MINUTE_S

LINES: Final = int(MINUTE_S)  # one a second, as a log that a person reads; a guess
LEFT_OUT: Final = "num_left_out"
"""Attribute of a record: lines of its kind that were left out before it."""


@dataclass(slots=True)
class _Kind:
    since: float
    num: int = 0
    num_left_out: int = 0


class LinePace(logging.Filter):
    """Takes so many lines of a kind; of others it says how many there were, with the next one.

    Errors always pass: they are our own. So do debug lines, which somebody has asked for.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds = BoundedDict[tuple[str, str], _Kind]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether `record` is written."""
        if not logging.DEBUG < record.levelno < logging.ERROR:
            return True
        now = self._clock()
        kind = self._kinds.use((record.name, str(record.msg)), lambda: _Kind(now))
        num_left_out = 0
        if now - kind.since >= MINUTE_S:
            num_left_out = kind.num_left_out
            kind.since, kind.num, kind.num_left_out = now, 0, 0
        if kind.num >= LINES:
            kind.num_left_out += 1
            return False
        kind.num += 1
        setattr(record, LEFT_OUT, num_left_out)
        return True

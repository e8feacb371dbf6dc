"""Unknown peers cannot fill the log: lines of one kind are limited per minute and counted."""

from __future__ import annotations

import json
import logging

from shoal_base.log_file import LogLines
from shoal_base.log_pace import LINES, LinePace
from shoal_base.waits import MINUTE_S


class Log:
    """A log of lines at times that the test says."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self._pace = LinePace(lambda: self.now)
        self._format = LogLines("node", as_json=as_json)

    def say(self, text: str, *values: object, level: int = logging.WARNING) -> None:
        record = logging.LogRecord("shoal_p2p.x", level, "", 0, text, values, None)
        if self._pace.filter(record):
            self.lines.append(self._format.format(record))


def test_unknown_peers_lines_do_not_displace_other_lines() -> None:
    log = Log()
    for number in range(10_000):
        log.now = number / 100
        log.say("%s signed two batches", f"name {number}")
        if number % 1000 == 0:
            log.say("the disk is full")
    assert sum("the disk is full" in line for line in log.lines) == 10
    assert len(log.lines) == 2 * LINES + 10


def test_how_many_there_were_stands_at_the_next_one() -> None:
    for as_json in (False, True):
        log = Log(as_json=as_json)
        for _ in range(LINES + 7):
            log.say("%s is cut off", "name")
        log.now = MINUTE_S
        log.say("%s is cut off", "name")
        log.say("%s is cut off", "name")
        if as_json:
            assert [json.loads(line).get("suppressed") for line in log.lines[-3:]] == [
                None,
                7,
                None,
            ]
        else:
            ends = [line.partition("name is cut off")[2] for line in log.lines[-3:]]
            assert ends == ["", " (7 similar lines suppressed)", ""]


def test_errors_and_requested_lines_always_pass() -> None:
    for level in (logging.DEBUG, logging.ERROR, logging.CRITICAL):
        log = Log()
        for _ in range(3 * LINES):
            log.say("a line", level=level)
        assert len(log.lines) == 3 * LINES

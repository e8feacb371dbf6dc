"""The worker's end: has the fork server's processes test a completion, and reads the verdict.

    one completion ─▶ fork ─▶ wait for a verdict, the end, or a limit ─▶ kill ─▶ `Outcome`

A verdict counts only if no process exceeded its time or its output. Processor time is measured, not
wall time, and a process that uses none for a while is taken to wait forever.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal_base.bounded import LINE_CHARS, PIECE_BYTES
from shoal_tasks.errors import WorkerUnavailable
from shoal_tasks.limits import test_wall_seconds
from shoal_tasks.types import Layer
from shoal_tasks.unit_tests import fork_server
from shoal_tasks.unit_tests.channel import MAX_FRAME_BYTES
from shoal_tasks.unit_tests.fork_server import MAX_OUTPUT_BYTES
from shoal_tasks.unit_tests.forms import SCRIPT
from shoal_tasks.unit_tests.outputs import difference
from shoal_wire.framing import FrameDecoder, FrameError, encode_frame

IDLE_SECONDS: Final = 3.0
"""Wall time without processor time after which a process is taken to wait forever."""
_POLL_SECONDS: Final = 0.25
_ACTIVE_SECONDS: Final = 0.0005
"""Minimum processor time, in seconds, of an active process in that interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one completion's tests."""

    error: str
    """Why a test fails, in one line; empty if all pass."""
    timed_out: bool = False
    cpu_seconds: float = 0.0
    """Processor time of all its processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """The end of one fork's processes."""

    message: dict[str, Any] | None
    """Their report; None if they ended first."""
    why: str
    """The limit of time or of waiting that they exceeded; empty if none."""
    codes: Sequence[int]
    cpu_seconds: Sequence[float]
    output: bytes
    """Standard output of the tested code, at most `MAX_OUTPUT_BYTES`."""


class TestRunner:
    """Tests completions, one at a time."""

    __test__ = False  # not a test class of pytest

    def __init__(self, control: socket.socket) -> None:
        """`control` is the worker's end, returned by `fork_server.start`."""
        self._control = control
        try:
            rows = json.loads(control.recv(PIECE_BYTES))
        except (OSError, ValueError):
            raise WorkerUnavailable("the process that runs tests does not start") from None
        self.layers = tuple(Layer(**{**row, "name": f"code_{row['name']}"}) for row in rows)
        """State of the sandbox layers around tested code."""

    def run(self, tests: dict[str, Any], code: str, seconds: float) -> Outcome:
        """Test a completion's code within `seconds` of processor time.

        Raises `WorkerUnavailable`: the fork server has ended.
        """
        if not code.strip():
            return Outcome(error="the completion has no code")
        return (self._scripts if tests["kind"] == SCRIPT else self._calls)(tests, code, seconds)

    def _calls(self, tests: dict[str, Any], code: str, seconds: float) -> Outcome:
        job = {"tests": tests, "code": code}
        ended = self._fork(fork_server.CALLS, job, seconds)
        used = sum(ended.cpu_seconds)
        if (limit := _exceeded_limit(ended, seconds)) is not None:
            return Outcome(
                error=limit, timed_out=not ended.why.startswith("it waits"), cpu_seconds=used
            )
        error = "the tests ended" if ended.message is None else str(ended.message.get("error"))
        if len(ended.output) >= MAX_OUTPUT_BYTES:
            error = "it prints too much"
        return Outcome(error=error[:LINE_CHARS], cpu_seconds=used)

    def _scripts(self, tests: dict[str, Any], code: str, seconds: float) -> Outcome:
        used = 0.0
        for number, (given, expected) in enumerate(tests["cases"], start=1):
            left = max(0.1, seconds - used)
            ended = self._fork(fork_server.SCRIPT, {"code": code, "input": given}, left)
            used += sum(ended.cpu_seconds)
            limit = _exceeded_limit(ended, left)
            error = limit or _script_error(ended) or difference(ended.output, expected)
            if error:
                timed_out = limit is not None and not ended.why.startswith("it waits")
                line = f"test {number}: {error}"[:LINE_CHARS]
                return Outcome(error=line, timed_out=timed_out, cpu_seconds=used)
        return Outcome(error="", cpu_seconds=used)

    def _fork(self, kind: str, job: dict[str, Any], seconds: float) -> _Ended:
        try:
            # Not send(), which the sandbox refuses; writing to a descriptor is allowed.
            os.write(self._control.fileno(), f"{kind} {math.ceil(seconds) + 1}\n".encode())
            reply, descriptors, _, _ = socket.recv_fds(self._control, PIECE_BYTES, 2)
            channel, output = descriptors
        except (OSError, ValueError):
            raise WorkerUnavailable("the process that runs tests has ended") from None
        try:
            message, why = _exchange(channel, job, json.loads(reply), seconds)
            printed = os.pread(output, MAX_OUTPUT_BYTES, 0)
        finally:
            os.close(channel)
            os.close(output)
            ended = self._end()
        codes, times = zip(*ended, strict=True)
        return _Ended(message=message, why=why, codes=codes, cpu_seconds=times, output=printed)

    def _end(self) -> list[Any]:
        """Kill the processes of this fork, and return how each ended and its time."""
        try:
            os.write(self._control.fileno(), b"end\n")
            found: list[Any] = json.loads(os.read(self._control.fileno(), PIECE_BYTES))
        except (OSError, ValueError):
            raise WorkerUnavailable("the process that runs tests has ended") from None
        return found


def _exchange(
    channel: int, job: dict[str, Any], pids: Sequence[int], seconds: float
) -> tuple[dict[str, Any] | None, str]:
    """Send a job and wait for one message. Return it, and the wall-time limit that was exceeded."""
    os.set_blocking(channel, False)
    rest = memoryview(encode_frame(json.dumps(job).encode("ascii"), max_bytes=MAX_FRAME_BYTES))
    decoder = FrameDecoder(max_bytes=MAX_FRAME_BYTES)
    deadline = time.monotonic() + test_wall_seconds(seconds)
    used, stirred = 0.0, time.monotonic()
    poll = select.poll()
    while True:
        poll.register(channel, select.POLLIN | (select.POLLOUT if rest else 0))
        events = poll.poll(1000 * _POLL_SECONDS)
        now = time.monotonic()
        try:
            if events and rest and events[0][1] & select.POLLOUT:
                rest = rest[os.write(channel, rest) :]
            elif events:
                data = os.read(channel, PIECE_BYTES)
                if not data:
                    return None, ""
                for frame in decoder.feed(data):
                    found = json.loads(frame)
                    return (found if isinstance(found, dict) else None), ""
        except (OSError, FrameError, ValueError, RecursionError):
            return None, ""
        times = _cpu_seconds(pids)
        if not times or sum(times) > used + _ACTIVE_SECONDS:
            used, stirred = sum(times), now
        if max(times, default=0.0) > seconds:
            return None, ""  # their exit status gives the time used
        if now - stirred > IDLE_SECONDS:
            return None, "it waits for something that never happens"
        if now > deadline:
            return None, f"it takes more than {test_wall_seconds(seconds):.0f} s"


def _cpu_seconds(pids: Sequence[int]) -> list[float]:
    """Return each process's processor time so far; empty if that is unknown."""
    try:
        # The clock id of a process, as numbered by clock_getcpuclockid(3).
        return [time.clock_gettime((~pid << 3) | 2) for pid in pids]
    except OSError:
        return []


def _exceeded_limit(ended: _Ended, seconds: float) -> str | None:
    """Return the time limit that the processes exceeded; None if none."""
    if ended.why:
        return ended.why
    if any(used >= seconds for used in ended.cpu_seconds):
        return f"it takes more than {seconds:.3g} s of processor time"
    return None


def _script_error(ended: _Ended) -> str:
    if len(ended.output) >= MAX_OUTPUT_BYTES:
        return "it prints too much"
    if ended.message is not None:
        return str(ended.message.get("error"))
    code = ended.codes[0]
    return "" if code == 0 else f"it ends with {'signal' if code < 0 else 'status'} {abs(code)}"

"""The task worker's resource limits, and its callers' deadlines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final, Self

from shoal_base.ranges import Bytes, Range, Ranged, Seconds, SecondsOrZero

MAX_ITEMS_PER_FRAME: Final = 64
MAX_ITEMS_ON_A_SERVER: Final = 8
"""The same for games that an OpenEnv server replays: a frame's deadline is 15 s, so one game may
take some two seconds."""
MAX_ITEMS_OF_A_JUDGE: Final = 1
"""The same for completions that an LLM grades, which may take seconds each."""
MAX_ITEMS_OF_TESTS: Final = 1
"""The same for programs that unit tests run."""
MAX_CHARS_PER_FRAME: Final = 1_000_000
"""Maximum completion characters in one frame; JSON may need twelve bytes for one."""

MAX_QUESTION_CHARS: Final = 256 * 1024

TIMED_OUT_ERROR: Final = "timed out"
"""The worker's error if generating a task used up its time, unlike a failing generator."""


def test_wall_seconds(cpu_seconds: float) -> float:
    """Return the wall-time limit of one completion's tests, a last resort on a machine that is
    busy with other work."""
    return 8 * cpu_seconds + 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits(Ranged):
    """Limits of the worker process, and deadlines of its callers."""

    item_cpu_seconds: Seconds = 1.0
    """Processor time for one item, measured by the worker. Not wall time: a busy machine must not
    turn correct answers into wrong ones."""
    request_timeout_seconds: Seconds = 15.0
    """Wall time for one frame of items; then the worker is killed."""
    start_timeout_seconds: Seconds = 180.0
    """Wall time from spawning a worker to its first reply. Imports take 1 to 2 s; with `verifiers`
    (5,400 modules) 3 to 4 s, and once 65 s on a busy machine."""
    process_cpu_seconds: Annotated[int, Range("s", 1, 365 * 86_400)] = 3600
    """Hard processor-time limit of one worker process."""
    recycle_cpu_seconds: Annotated[int, Range("s", 1, 365 * 86_400)] = 1800
    """Processor time after which a healthy worker is replaced between two requests."""
    memory_bytes: Bytes = 512 * 1024 * 1024
    """Address space in addition to what the imports used."""
    max_open_files: Annotated[int, Range("files", 3, 1 << 20)] = 16
    max_restarts: Annotated[int, Range("starts", 1, 1000)] = 4
    """Consecutive failed starts before callers get `WorkerUnavailable`."""
    max_backoff_seconds: SecondsOrZero = 5.0
    """Maximum pause between two starts, in seconds; it doubles from 0.1."""

    def of_tests(self, test_seconds: int) -> Self:
        """Return the limits of a worker for unit tests, with `test_seconds` of processor time for
        each completion."""
        seconds = test_wall_seconds(test_seconds)
        return replace(
            self,
            item_cpu_seconds=15 * self.item_cpu_seconds,
            request_timeout_seconds=self.request_timeout_seconds + seconds,
            start_timeout_seconds=self.start_timeout_seconds + seconds,
        )

    def of_a_judge(self) -> Self:
        """Return the limits of a judge's worker, which calls an LLM or loads a small one. Guesses:
        an LLM's reply takes 1 to 10 s, and a judge of 135 M parameters some 1.5 GiB."""
        return replace(
            self,
            item_cpu_seconds=15 * self.item_cpu_seconds,
            request_timeout_seconds=2 * self.request_timeout_seconds,
            memory_bytes=8 * self.memory_bytes,
            max_open_files=256,
        )

"""CPU seconds of a trainer and its node while they run, without their task workers.

Wall time depends on the machine's other load; CPU time hardly does.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil

_POLL_SECONDS = 0.1


class CpuWatch:
    """Reads CPU times between two rounds of a run."""

    def __init__(self, process: subprocess.Popen[bytes], metrics: Path, first_round: int) -> None:
        self._process = process
        self._metrics = metrics
        self._first_round = first_round
        self._first: tuple[int, dict[str, float]] | None = None
        self._last: tuple[int, dict[str, float]] | None = None

    def run(self, limit_seconds: float) -> int | None:
        """Watch until the process ends; return its exit code, or None when killed at the limit."""
        deadline = time.monotonic() + limit_seconds
        while (code := self._process.poll()) is None:
            if time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                return None
            self._look()
            time.sleep(_POLL_SECONDS)
        return code

    def ms_per_round(self) -> dict[str, float]:
        """Return CPU milliseconds a round, of `trainer` and, if there is one, `node`."""
        if self._first is None or self._last is None or self._last[0] <= self._first[0]:
            raise RuntimeError("too few rounds were seen to measure CPU time")
        rounds = self._last[0] - self._first[0]
        return {
            role: 1000 * (seconds - self._first[1].get(role, 0.0)) / rounds
            for role, seconds in self._last[1].items()
        }

    def _look(self) -> None:
        if not self._metrics.exists():
            return
        before = self._rounds()
        if before < self._first_round:
            return
        try:
            times = self._times()
        except psutil.NoSuchProcess:
            return  # it is ending; the last look counts
        if "trainer" in times:
            self._last = (before, times)
            self._first = self._first or self._last

    def _rounds(self) -> int:
        return self._metrics.read_bytes().count(b'"event": "round"')

    def _times(self) -> dict[str, float]:
        root = psutil.Process(self._process.pid)
        roles = ((_role(process), process) for process in (root, *root.children(recursive=True)))
        return {role: sum(process.cpu_times()[:2]) for role, process in roles if role is not None}


def _role(process: psutil.Process) -> str | None:
    command = process.cmdline()
    if "shoal_tasks.worker" in command:
        return None
    return "trainer" if "shoal_policy" in command or "trainer" in command else "node"

"""Resources that a peer uses: bytes per second, CPU, memory, disk.

Measured only on request. A rate covers the last minute, or the time since the previous request if
that is longer ago, or since the start for the first.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

import psutil
import trio

from shoal_base.bounded import MANY
from shoal_base.waits import MINUTE_S, RETRY_S
from shoal_ipc.answers.peer import CostView, Process
from shoal_p2p.net.traffic import Traffic
from shoal_p2p.threads import InThread


class GrowthRate:
    """Growth of a count per second."""

    def __init__(self, at: float, total: float) -> None:
        self._seen = deque([(at, total)])

    def add(self, at: float, total: float) -> None:
        """Add the current total; a total that fell restarts the measurement."""
        if total < self._seen[-1][1]:
            self._seen = deque([(at, total)])
            return
        if len(self._seen) > 1 and at - self._seen[-2][0] < RETRY_S:
            self._seen.pop()
        self._seen.append((at, total))
        while len(self._seen) > 2 and at - self._seen[1][0] >= MINUTE_S:
            self._seen.popleft()

    @property
    def seconds(self) -> float:
        """The time, in seconds, that the rate covers."""
        return self._seen[-1][0] - self._seen[0][0]

    @property
    def per_second(self) -> float | None:
        """None before any time has passed."""
        grown = self._seen[-1][1] - self._seen[0][1]
        return grown / self.seconds if self.seconds > 0 else None


class _ProcessMeter:
    """One process of this machine."""

    def __init__(self, pid: int, at: float) -> None:
        self.pid = pid
        self._process = psutil.Process(pid)
        # The wall clock, as the process's start time is in it.
        age = max(0.0, time.time() - self._process.create_time())
        self._cpu = GrowthRate(at - age, 0.0)

    def measure(self, at: float) -> Process:
        """Return its CPU use (1.0 is one core) and its memory. Raises psutil.Error."""
        with self._process.oneshot():
            times, memory = self._process.cpu_times(), self._process.memory_info()
        self._cpu.add(at, times.user + times.system)
        share = self._cpu.per_second
        return Process(cpu=None if share is None else round(share, 4), rss_bytes=memory.rss)


class CostMeter:
    """Measures the traffic, disk use and processes of one peer."""

    def __init__(self, traffic: Traffic, data_dir: Path, *, in_thread: InThread) -> None:
        self._traffic = traffic
        self._data_dir = data_dir
        self._in_thread = in_thread
        now = trio.current_time()
        self._in, self._out = GrowthRate(now, 0.0), GrowthRate(now, 0.0)
        self._processes: dict[str, _ProcessMeter] = {}
        self._disk: tuple[float, int] | None = None
        """Time of the count, and the bytes."""

    async def view(self, pids: Mapping[str, int | None]) -> CostView:
        """Return the current cost; `pids` are the processes to measure, by name."""
        now = trio.current_time()
        self._in.add(now, self._traffic.bytes_in)
        self._out.add(now, self._traffic.bytes_out)
        return CostView(
            window_s=round(self._in.seconds, 3),
            bytes_in=self._traffic.bytes_in,
            bytes_out=self._traffic.bytes_out,
            bytes_in_s=_rounded(self._in.per_second),
            bytes_out_s=_rounded(self._out.per_second),
            disk_bytes=await self._disk_bytes(now),
            processes={name: self._measure(name, pid, now) for name, pid in pids.items()},
        )

    def _measure(self, name: str, pid: int | None, now: float) -> Process | None:
        known = self._processes.get(name)
        try:
            if pid is None:
                raise psutil.NoSuchProcess(0)
            if known is None or known.pid != pid:
                known = self._processes[name] = _ProcessMeter(pid, now)
            return known.measure(now)
        except psutil.Error:
            self._processes.pop(name, None)
            return None

    async def _disk_bytes(self, now: float) -> int:
        if self._disk is None or now - self._disk[0] >= MINUTE_S:
            self._disk = now, await self._in_thread(bytes_below, self._data_dir)
        return self._disk[1]


def bytes_below(folder: Path) -> int:
    """Return the bytes that files below a folder occupy, of the first `MANY` files. Blocks."""
    found = (Path(where, one) for where, *names in os.walk(folder) for one in chain(*names))
    total = 0
    for entry in islice(found, MANY):
        with suppress(OSError):  # deleted meanwhile, or not readable
            total += entry.lstat().st_blocks * 512
    return total


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)

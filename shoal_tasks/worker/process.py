"""Starts and kills the worker process, and moves bytes to and from it, for both clients."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

import shoal_tasks
import shoal_wire
from shoal_base.bounded import PIECE_BYTES
from shoal_base.children import SAFE_PATH, python
from shoal_base.extras import missing_for_tasks
from shoal_base.waits import SHORT_DEADLINE_S
from shoal_tasks.errors import FamilyError

_REAP_POLL_SECONDS: Final = 0.01
"""Interval of polling for the child's end: not every platform has an event for it."""
_ALL_HAVE: Final = {
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # One thread only: a process with several cannot enter a user namespace.
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    SAFE_PATH: "1",
    "PYTHONUTF8": "1",
}
_ENVIRONMENT: Final = {"HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "TZ": "UTC", **_ALL_HAVE}


class Pipes(ABC):
    """The current worker process of one client, and its pipes.

    A subclass defines how the client waits, and its clock.
    """

    def __init__(self) -> None:
        self._popen: subprocess.Popen[bytes] | None = None
        self._write_fd = self._read_fd = -1
        self._deadline = 0.0

    @property
    def pid(self) -> int | None:
        """The process id; None if no worker runs."""
        return None if self._popen is None else self._popen.pid

    @abstractmethod
    def now(self) -> float:
        """Return the client's clock, in seconds."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Sleep."""

    @abstractmethod
    async def ready(self, descriptor: int, deadline: float, *, is_to_write: bool) -> None:
        """Wait until a pipe is ready. Raises TimeoutError after `deadline`, a time of `now`."""

    def launch(self, *, is_of_a_judge: bool) -> int:
        """Start a process and return its pid.

        A judge's process inherits the operator's environment: API keys, proxies, certificates. Call
        from a thread that lives as long as the worker should: the kernel kills the worker when the
        thread that started it ends.

        Raises:
            FamilyError: the libraries for tasks are not installed.
            OSError: the process does not start.
        """
        if (missing := missing_for_tasks()) is not None:
            raise FamilyError(missing)
        environment = _operators() | _ALL_HAVE if is_of_a_judge else _ENVIRONMENT
        child_in, write_fd = os.pipe()
        read_fd, child_out = os.pipe()
        try:
            self._popen = subprocess.Popen(
                python("-m", "shoal_tasks.worker", f"--parent-pid={os.getpid()}", *_accepted()),
                stdin=child_in,
                stdout=child_out,
                stderr=subprocess.DEVNULL,
                env={**environment, "PYTHONPATH": _import_path()},
                start_new_session=True,
            )
        except OSError:
            os.close(write_fd)
            os.close(read_fd)
            raise
        finally:
            os.close(child_in)
            os.close(child_out)
        os.set_blocking(write_fd, False)
        os.set_blocking(read_fd, False)
        self._write_fd, self._read_fd = write_fd, read_fd
        return self._popen.pid

    async def send(self, data: bytes, seconds: float) -> None:
        """Write all of `data`. The deadline also covers every `receive` until the next `send`.

        Raises OSError, or TimeoutError after the deadline.
        """
        self._deadline = self.now() + seconds
        # The worker reads a whole frame before it writes one, so this cannot deadlock.
        rest = memoryview(data)
        while True:
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(self._write_fd, rest) :]
            if not rest:
                return
            await self.ready(self._write_fd, self._deadline, is_to_write=True)

    async def receive(self) -> bytes:
        """Return the available bytes; empty at end of file. Raises as `send`."""
        await self.ready(self._read_fd, self._deadline, is_to_write=False)
        return os.read(self._read_fd, PIECE_BYTES)

    async def kill(self) -> None:
        """Kill the worker's process group and reap it; does nothing without a worker."""
        popen, self._popen = self._popen, None
        if popen is None:
            return
        try:
            # The worker leads its own session, and its pid is ours until it is reaped.
            os.killpg(popen.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            popen.kill()
        os.close(self._write_fd)
        os.close(self._read_fd)
        self._write_fd = self._read_fd = -1
        deadline = self.now() + SHORT_DEADLINE_S
        while popen.poll() is None and self.now() < deadline:
            await self.pause(_REAP_POLL_SECONDS)


WEAK_SANDBOX: Final = "SHOAL_WEAK_SANDBOX"
"""Environment variable by which the user accepts that Python rewards and games run in a weak
sandbox (the setting `weak_sandbox`)."""


def accept_weak_sandbox() -> None:
    """Let this process's workers run users' files in a weak sandbox."""
    os.environ[WEAK_SANDBOX] = "true"


def _accepted() -> list[str]:
    value = os.environ.get(WEAK_SANDBOX, "").lower()
    return ["--weak-sandbox"] if value in ("1", "true", "yes", "on") else []


def _operators() -> dict[str, str]:
    """Return this process's environment without shoal's settings: one may be the swarm key."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}


def _import_path() -> str:
    roots = {
        str(Path(str(package.__file__)).parent.parent) for package in (shoal_tasks, shoal_wire)
    }
    return os.pathsep.join(sorted(roots))

"""Starts and ends the worker's process, and moves bytes to it and from it, for both clients."""

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
"""Pause between two looks at it: a child's end has no event on every platform."""
_ALL_HAVE: Final = {
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # One thread: a process with several cannot enter a user namespace.
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    SAFE_PATH: "1",
    "PYTHONUTF8": "1",
}
_ENVIRONMENT: Final = {"HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "TZ": "UTC", **_ALL_HAVE}


class Pipes(ABC):
    """One client's worker of the moment: its process and its pipes.

    How a client waits, and by which clock, is its own.
    """

    def __init__(self) -> None:
        self._popen: subprocess.Popen[bytes] | None = None
        self._write_fd = self._read_fd = -1
        self._deadline = 0.0

    @property
    def pid(self) -> int | None:
        """The process's id; None where there is none."""
        return None if self._popen is None else self._popen.pid

    @abstractmethod
    def now(self) -> float:
        """Return the seconds of the client's clock."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    async def ready(self, descriptor: int, deadline: float, *, is_to_write: bool) -> None:
        """Wait for one end of a pipe. Raises TimeoutError past the deadline, in `now`'s seconds."""

    def launch(self, *, is_of_a_judge: bool) -> int:
        """Start a process and return its pid. A judge's has the operator's environment: keys,
        proxies and certificates of an API.

        Call from a thread that lives as long as the worker is to live: the kernel ends the worker
        when the thread that started it ends.

        Raises:
            FamilyError: this installation lacks the library of questions.
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
        """Write all. The deadline is for this and for every `receive` up to the next.

        Raises OSError, past the deadline a TimeoutError.
        """
        self._deadline = self.now() + seconds
        # The worker reads a frame to its end before it writes one, so this cannot lock up.
        rest = memoryview(data)
        while True:
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(self._write_fd, rest) :]
            if not rest:
                return
            await self.ready(self._write_fd, self._deadline, is_to_write=True)

    async def receive(self) -> bytes:
        """Return what there is, and nothing at the end of file. Raises as `send`."""
        await self.ready(self._read_fd, self._deadline, is_to_write=False)
        return os.read(self._read_fd, PIECE_BYTES)

    async def kill(self) -> None:
        """End the worker's whole process group and collect its status; harmless without one."""
        popen, self._popen = self._popen, None
        if popen is None:
            return
        try:
            # The worker leads a session of its own, and its pid is ours until it is reaped.
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
"""The variable by which a user accepts that rewards and games in Python run with little in the way
(the setting `weak_sandbox`)."""


def accept_weak_sandbox() -> None:
    """Let the workers that this process starts run users' files in a sandbox without a wall."""
    os.environ[WEAK_SANDBOX] = "true"


def _accepted() -> list[str]:
    value = os.environ.get(WEAK_SANDBOX, "").lower()
    return ["--weak-sandbox"] if value in ("1", "true", "yes", "on") else []


def _operators() -> dict[str, str]:
    """This process's environment without shoal's settings: a swarm's key may be among them."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}


def _import_path() -> str:
    roots = {
        str(Path(str(package.__file__)).parent.parent) for package in (shoal_tasks, shoal_wire)
    }
    return os.pathsep.join(sorted(roots))

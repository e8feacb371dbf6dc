"""Starts and ends the worker's process, and reads its report. Shared by both clients."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import shoal_tasks
import shoal_wire
from shoal_tasks.errors import FamilyError, WorkerProtocolError, WorkerUnavailable
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec, spec_to_json
from shoal_tasks.worker.frames import Message

_ENVIRONMENT: Final = {
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # One thread: a process with several cannot enter a user namespace.
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONSAFEPATH": "1",
    "PYTHONUTF8": "1",
    "TZ": "UTC",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of the worker's sandbox, as the worker reported it."""

    name: str
    active: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What a worker said about itself when it was ready."""

    pid: int
    verifier_version: str
    layers: tuple[Layer, ...]

    @property
    def inactive_layers(self) -> tuple[str, ...]:
        """Names of the layers this machine or user does not allow."""
        return tuple(layer.name for layer in self.layers if not layer.active)


class WorkerProcess:
    """A running worker: its pid and the two pipe ends of ours, which are non-blocking."""

    def __init__(self) -> None:
        """Start it. Call from a thread that lives as long as the worker is to live: the kernel
        ends the worker when the thread that started it ends. Raises OSError."""
        child_in, self.write_fd = os.pipe()
        self.read_fd, child_out = os.pipe()
        try:
            self._popen = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "shoal_tasks.worker",
                    f"--parent-pid={os.getpid()}",
                ],
                stdin=child_in,
                stdout=child_out,
                stderr=subprocess.DEVNULL,
                env={**_ENVIRONMENT, "PYTHONPATH": _import_path()},
                start_new_session=True,
            )
        except OSError:
            os.close(self.write_fd)
            os.close(self.read_fd)
            raise
        finally:
            os.close(child_in)
            os.close(child_out)
        os.set_blocking(self.write_fd, False)
        os.set_blocking(self.read_fd, False)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def kill(self) -> None:
        """Kill the worker's whole process group. Harmless when it is already gone."""
        if self._popen.returncode is not None:
            return
        try:
            # The worker leads a session of its own, and its pid is ours until it is reaped.
            os.killpg(self._popen.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._popen.kill()

    def reaped(self) -> bool:
        """Whether the process has ended; collects its status, so that no zombie stays."""
        return self._popen.poll() is not None

    def wait(self, timeout_seconds: float) -> bool:
        """Block until the process has ended, at most so long; False when it has not."""
        try:
            self._popen.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def _import_path() -> str:
    roots = {
        str(Path(str(package.__file__)).parent.parent) for package in (shoal_tasks, shoal_wire)
    }
    return os.pathsep.join(sorted(roots))


def setup_message(specs: Sequence[FamilySpec], limits: WorkerLimits) -> Message:
    """The first frame a worker gets."""
    return {
        "op": "setup",
        "families": [spec_to_json(spec) for spec in specs],
        "limits": dataclasses.asdict(limits),
    }


def read_report(pid: int, reply: Message) -> WorkerReport:
    """Read the answer to the set-up.

    Raises `FamilyError` where the worker refuses a family, `WorkerUnavailable` where it could not
    get ready for another reason, `WorkerProtocolError` where the answer makes no sense.
    """
    check_ok(reply)
    rows: Any = reply.get("layers")
    try:
        layers = tuple(
            Layer(name=str(row["name"]), active=row["active"] is True, detail=str(row["detail"]))
            for row in rows
        )
    except (TypeError, KeyError):
        raise WorkerProtocolError("report has no layers") from None
    return WorkerReport(pid=pid, verifier_version=str(reply.get("verifier_version")), layers=layers)


def check_ok(reply: Message) -> None:
    """Raise what a refusal of the worker means."""
    if reply.get("ok") is True:
        return
    reason = str(reply.get("error"))[:500]
    if reply.get("kind") == "FamilyError":
        raise FamilyError(reason)
    raise WorkerUnavailable(f"task worker: {reply.get('kind')}: {reason}")


def cpu_seconds(reply: Message) -> float:
    """Processor time the worker has used so far; 0 where it does not say."""
    value = reply.get("cpu_seconds")
    # Not made a float: an integer of a thousand digits cannot be one.
    return value if isinstance(value, int | float) else 0.0

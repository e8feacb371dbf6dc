"""Forks, for each completion, one process for the tests and one for the tested code.

    worker ──"calls 5"──▶ fork server ─┬─fork─▶ checker   ◀──calls──▶ candidate
       ▲    pids, descriptors │        └─fork─▶ candidate
       └──────────────────────┘   "end" ──▶ both are killed and reaped ──▶ how they ended

The server is forked before the worker reads any file, so that no candidate's memory ever contains a
test or an expected value. It has no network and no files, and obeys only the worker. A candidate
has no descriptors except its channel, its input and its output.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from shoal_base.bounded import PIECE_BYTES
from shoal_tasks.sandbox import layers
from shoal_tasks.unit_tests import candidate, checker
from shoal_tasks.unit_tests.channel import Channel
from shoal_tasks.unit_tests.preloaded import MODULES

MAX_OUTPUT_BYTES: Final = 8 << 20
"""Maximum output of a program: the kernel refuses more, and the completion earns 0."""
CALLS: Final = "calls"
SCRIPT: Final = "script"


def start(memory_bytes: int) -> socket.socket:
    """Fork the server and return the worker's end. Call before any secret is in memory."""
    ours, theirs = socket.socketpair()
    parent_pid = os.getpid()
    if os.fork() == 0:
        try:
            ours.close()
            _serve(theirs, parent_pid, memory_bytes)
        finally:
            os._exit(1)
    theirs.close()
    return ours


def _serve(control: socket.socket, parent_pid: int, memory_bytes: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    kept = {0, 1, 2, null, control.fileno()}
    for descriptor in range(3, 256):
        if descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    preload()
    os.environ.clear()
    used_bytes, entered = layers.enter_before_forks(parent_pid)
    server = _Server(control, null, used_bytes, memory_bytes)
    gc.collect()
    gc.freeze()
    control.sendall(json.dumps([asdict(layer) for layer in entered]).encode())
    while order := control.recv(PIECE_BYTES).split():
        server.end() if order[0] == b"end" else server.fork(order[0].decode(), int(order[1]))


def preload() -> None:
    """Import the modules that programs may import, because there is no disk afterwards."""
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.path.clear()
    sys.meta_path[:] = [one for one in sys.meta_path if one is not importlib.machinery.PathFinder]
    sys.path_importer_cache.clear()


class _Server:
    """The server's state: the processes of the current completion."""

    def __init__(
        self, control: socket.socket, null: int, used_bytes: int, memory_bytes: int
    ) -> None:
        self._control, self._null = control, null
        self._used_bytes, self._memory_bytes = used_bytes, memory_bytes
        self._pids: list[int] = []

    def fork(self, kind: str, cpu_seconds: int) -> None:
        """Fork the processes, and send the worker their ids, its channel and the output file."""
        workers, own = socket.socketpair()
        given, output = _empty_file(), _empty_file()
        sockets, files = [workers, own], [given, output]
        if kind == CALLS:
            left, right = socket.socketpair()
            sockets += [left, right]

            def checks() -> None:
                _check(Channel(own.fileno()), Channel(left.fileno()))

            self._child(checks, cpu_seconds, {own.fileno(), left.fileno()})
            work, channel = candidate.serve_calls, right
        else:
            work, channel = candidate.run_script, own

        def runs() -> None:
            os.dup2(given, 0)
            os.dup2(output, 1)
            os.dup2(channel.fileno(), 3)
            work(Channel(3))

        self._child(runs, cpu_seconds, {channel.fileno(), given, output})
        message = json.dumps(self._pids).encode()
        socket.send_fds(self._control, [message], [workers.fileno(), output])
        for one in sockets:
            one.close()
        for descriptor in files:
            os.close(descriptor)

    def _child(self, work: Callable[[], None], cpu_seconds: int, kept: set[int]) -> None:
        parent_pid = os.getpid()
        pid = os.fork()
        if pid:
            self._pids.append(pid)
            return
        try:
            for descriptor in range(3, 64):
                if descriptor not in kept:
                    with contextlib.suppress(OSError):
                        os.close(descriptor)
            layers.confine_fork(
                self._used_bytes,
                memory_bytes=self._memory_bytes,
                cpu_seconds=cpu_seconds,
                file_bytes=MAX_OUTPUT_BYTES,
                parent_pid=parent_pid,
            )
            work()
        except SystemExit as ending:
            os._exit(ending.code if isinstance(ending.code, int) else 1)
        except BaseException:  # noqa: BLE001  the process exits in any case
            os._exit(1)
        finally:
            os._exit(0)

    def end(self) -> None:
        """Kill the processes, and send the worker the signal and the time with which each ended."""
        ended = []
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            ended.append([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime])
        self._pids.clear()
        self._control.sendall(json.dumps(ended).encode())


def _check(worker: Channel, code: Channel) -> None:
    job: dict[str, Any] = worker.receive()
    worker.send({"error": checker.check(job["tests"], job["code"], code)})


def _empty_file() -> int:
    """Return a file without a name in any folder."""
    if sys.platform == "linux":
        return os.memfd_create("text")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())

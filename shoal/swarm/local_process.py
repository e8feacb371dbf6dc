"""A shoal process that another shoal command starts, watches through its socket, and stops."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from shoal.view.asking import inspector
from shoal_base.children import environment
from shoal_base.log_file import CHILD_LOG, LOG_BYTES, BoundedFile
from shoal_ipc.answers.form import read
from shoal_ipc.answers.node import Status
from shoal_ipc.client import NodeRefused, NodeUnavailable
from shoal_p2p.data_dir import LAST_STATUS_FILE

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_STATUS_SECONDS = 5.0  # a guess: a node on this machine answers in milliseconds
_LINE_BYTES = 1 << 16  # a guess: far more than a ready line has


class ChildDied(Exception):  # noqa: N818 - an event, reported to the user
    """A process ended before it was ready; the text names its log."""


class LocalProcess:
    """One child process. Its standard error goes to ``log.txt`` in its data directory."""

    def __init__(self, command: Sequence[str], data_dir: Path) -> None:
        self._command = list(command)
        self._data_dir = data_dir
        self._process: trio.Process | None = None
        self._ready = trio.Event()
        self._ready_line: dict[str, Any] = {}
        self._ended = trio.Event()
        self._client = inspector(data_dir, _STATUS_SECONDS)
        self._started = time.time()
        self.exit_code: int | None = None

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the process and read its JSON lines until it ends."""
        self._process = process = await trio.lowlevel.open_process(
            self._command,
            stdin=subprocess.PIPE,  # its end tells the child that we are gone
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            start_new_session=True,
        )
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_lines, process)
                nursery.start_soon(self._keep_log, process)
            self.exit_code = await process.wait()
        finally:
            self._ended.set()

    async def ready(self, seconds: float) -> dict[str, Any]:
        """Wait for the process's `ready` line.

        Raises:
            ChildDied: it ended, or did not get ready in time.
        """
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:

                async def cancel_at_end() -> None:
                    await self._ended.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(cancel_at_end)
                await self._ready.wait()
                nursery.cancel_scope.cancel()
        if not self._ready.is_set():
            raise ChildDied(f"a process did not start: {self.last_log_line()}")
        return self._ready_line

    async def status(self) -> Status | None:
        """Return the process's status, or None while it does not answer."""
        if self._ended.is_set():
            return None
        return await trio.to_thread.run_sync(self._ask)

    async def last_status(self) -> Status | None:
        """Return the status that the process left when it ended in order, if it did."""
        path = trio.Path(self._data_dir / LAST_STATUS_FILE)
        try:
            if (await path.stat()).st_mtime < self._started:
                return None
            return read(Status, json.loads(await path.read_text()))
        except (OSError, ValueError):
            return None

    def last_log_line(self) -> str:
        """Return the last line of its log, or where the log is."""
        path = self._data_dir / CHILD_LOG
        with contextlib.suppress(OSError):
            lines = path.read_text(errors="replace").split("\n")
            for line in reversed(lines):
                if line.strip():
                    return f"{line.strip()} ({path})"
        return f"see {path}"

    async def stop(self, seconds: float) -> None:
        """SIGTERM, then after `seconds` SIGKILL; returns when it has ended."""
        if self._process is None or self._ended.is_set():
            return
        self._process.send_signal(signal.SIGTERM)
        with trio.move_on_after(seconds):
            await self._ended.wait()
            return
        self._process.kill()
        await self._ended.wait()

    def _ask(self) -> Status | None:
        with contextlib.suppress(NodeUnavailable, NodeRefused, ValueError):
            return read(Status, self._client.inspect("status"))
        return None

    async def _keep_log(self, process: trio.Process) -> None:
        assert process.stderr is not None, "opened with a pipe"
        log = BoundedFile(self._data_dir / CHILD_LOG, LOG_BYTES)
        async for chunk in process.stderr:
            await trio.to_thread.run_sync(log.append, bytes(chunk))

    async def _read_lines(self, process: trio.Process) -> None:
        if process.stdout is None:
            raise AssertionError("opened with a pipe")
        pending = b""
        async for chunk in process.stdout:
            *lines, pending = (pending + chunk)[-_LINE_BYTES:].split(b"\n")
            for line in lines:
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return
        if isinstance(event, dict) and event.get("event") == "ready":
            self._ready_line = event
            self._ready.set()

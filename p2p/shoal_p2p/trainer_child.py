"""The trainer as a supervised child process.

    starting ─▶ running ─exit 0─▶ finished
        ▲          │ exit 2 (wrong settings) ─▶ misconfigured
        │          │ exit 3 (its numbers are not finite) ─▶ diverged ─(a long pause)─▶ starting
        │          ▼ any other end
        └─ backoff ┴─ too many in a row ─▶ broken ─(a long pause)─▶ starting

The node continues to gossip in every state. The child's standard error is passed on, and its tail
is kept to report the cause of a failure. The child detects the end of the node by the end of its
standard input.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import secrets
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import trio

from shoal_base.children import environment, python
from shoal_base.waits import AT_ONCE_S
from shoal_p2p.output_tail import OutputTail
from shoal_settings.exits import EXIT_DIVERGED, EXIT_FAILED, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

_STDERR = 2

NODE_RUN = secrets.token_hex(8)
"""Identifies this process to its trainers, so that `--no-resume` starts over only once."""


class ChildState(StrEnum):
    """State of the trainer, as `shoal status` shows it."""

    DISABLED = "disabled"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """It ended and is restarted after a pause."""
    BROKEN = "broken"
    """It ended too often in a row; the next start is minutes away."""
    DIVERGED = "diverged"
    """Its loss stays non-finite. Restarted in minutes: by then the external groups differ."""
    MISCONFIGURED = "misconfigured"
    """It refused its settings; starting it again would not help."""
    FINISHED = "finished"
    """It completed its rounds."""
    STOPPED = "stopped"
    """It was asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPolicy:
    """Pauses before a dead trainer is started again. Seconds unless named otherwise."""

    first_backoff_seconds: float = 0.5
    max_backoff_seconds: float = 30.0
    healthy_seconds: float = 60.0
    """A child that lived this long resets the count of failures."""
    max_failures: int = 5
    """Failures in a row that open the circuit breaker."""
    broken_seconds: float = 300.0
    """Pause with the breaker open, or after numbers diverged; then one more child is tried."""
    stop_seconds: float = 15.0
    """Time to write a last checkpoint; then it is killed."""


class TrainerChild:
    """Starts, watches and stops the trainer process."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        policy: ChildPolicy | None = None,
        rng: random.Random | None = None,
        on_state: Callable[[ChildState], None] = lambda _state: None,
        command: Sequence[str] = (
            *python("-m", "shoal_policy"),
            *("--supervised", "--node-run", NODE_RUN),
        ),
    ) -> None:
        self._command = [*command, *arguments]
        self._policy = policy or ChildPolicy()
        self._rng = rng or random.Random()
        self._on_state = on_state
        self.state = ChildState.STARTING
        self.pid: int | None = None
        self.restarts = 0
        self.last_exit: int | None = None
        self.last_error = ""
        """The error line of the last child that failed; empty before the first."""
        self._next_start: float | None = None
        self._restart = trio.Event()

    def restart(self) -> None:
        """Have the trainer write a checkpoint, end, and start again from it at once."""
        self._restart.set()

    @property
    def next_start_s(self) -> float | None:
        """Seconds until it is started again; None while it runs, or never is."""
        return None if self._next_start is None else max(0, self._next_start - trio.current_time())

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a trainer running until it finishes, refuses its settings, or is cancelled."""
        task_status.started()
        failures = 0
        while True:
            lived, code = await self._run_once()
            if self._restart.is_set():
                self._restart = trio.Event()
                continue
            if code == EXIT_OK:
                return self._enter(ChildState.FINISHED)
            if code == EXIT_USAGE:
                log.debug("the trainer refused its settings; it is not started again")
                return self._enter(ChildState.MISCONFIGURED)
            if code == EXIT_DIVERGED:
                self._enter(ChildState.DIVERGED)
                pause = self._policy.broken_seconds
            else:
                failures = 1 if lived >= self._policy.healthy_seconds else failures + 1
                pause = self._pause(failures)
            why = f": {self.last_error}" if self.last_error else ""
            log.warning("the trainer ended (%s)%s; next start in %.1f s", ending(code), why, pause)
            self._next_start = trio.current_time() + pause
            await trio.sleep(pause)
            self._next_start = None
            self.restarts += 1

    async def _run_once(self) -> tuple[float, int]:
        self._enter(ChildState.STARTING)
        started = trio.current_time()
        words = OutputTail()
        try:
            process = await trio.lowlevel.open_process(
                self._command,
                stdin=subprocess.PIPE,  # its end tells the child that we are gone
                stderr=subprocess.PIPE,
                env=environment(),
                start_new_session=True,  # Ctrl-C is ours to handle
            )
        except OSError as error:  # no memory or no process left: a reason to wait, not to die
            self.last_error = f"cannot start it: {error}"
            return 0.0, EXIT_FAILED
        self.pid = process.pid
        self._enter(ChildState.RUNNING)
        async with trio.open_nursery() as nursery:
            hearing = trio.CancelScope(shield=True)  # also what it says while it is stopped
            nursery.start_soon(_listen, process, words, hearing)
            restarting = trio.CancelScope()
            nursery.start_soon(self._stop_for_restart, process, restarting)
            try:
                code = await process.wait()
            except trio.Cancelled:
                await self._stop(process)
                self._enter(ChildState.STOPPED)
                raise
            finally:
                self.pid = None
                restarting.cancel()
                # Its own children may hold the other end open; its output is complete by now.
                hearing.deadline = trio.current_time() + AT_ONCE_S
                if process.stdin is not None:
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + AT_ONCE_S):
                        await process.stdin.aclose()
        self.last_exit = code
        if code != EXIT_OK:
            self.last_error = words.cause()
        return trio.current_time() - started, code

    async def _stop_for_restart(self, process: trio.Process, scope: trio.CancelScope) -> None:
        with scope:
            await self._restart.wait()
            await self._stop(process)

    async def _stop(self, process: trio.Process) -> None:
        """SIGTERM, time for a checkpoint, SIGKILL."""
        with trio.CancelScope(shield=True):
            process.send_signal(signal.SIGTERM)
            with trio.move_on_after(self._policy.stop_seconds):
                self.last_exit = await process.wait()
                return
            log.warning("the trainer did not stop in %.0f s; killed", self._policy.stop_seconds)
            process.kill()
            self.last_exit = await process.wait()

    def _pause(self, failures: int) -> float:
        policy = self._policy
        if failures >= policy.max_failures:
            log.error(
                "the trainer failed %d times in a row; the node continues without it", failures
            )
            self._enter(ChildState.BROKEN)
            return policy.broken_seconds
        self._enter(ChildState.WAITING)
        backoff = min(
            policy.max_backoff_seconds, policy.first_backoff_seconds * 2 ** (failures - 1)
        )
        return backoff * self._rng.uniform(0.5, 1.0)

    def _enter(self, state: ChildState) -> None:
        self.state = state
        self._on_state(state)


async def _listen(process: trio.Process, words: OutputTail, scope: trio.CancelScope) -> None:
    """Pass on a child's output, and record its tail, until it ends."""
    assert process.stderr is not None
    async with process.stderr:
        with scope, contextlib.suppress(trio.BrokenResourceError):
            async for data in process.stderr:
                words.feed(data)
                # In a thread, so that a paused terminal (Ctrl-S) does not block the node.
                await trio.to_thread.run_sync(_pass_on, data)


def _pass_on(data: bytes) -> None:
    with contextlib.suppress(OSError):  # the node's own terminal is closed
        os.write(_STDERR, data)


def ending(code: int) -> str:
    """Return a description of how a process ended."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"

"""The trainer as a supervised child process.

    starting ─▶ running ─exit 0─▶ finished
        ▲          │ exit 2 (wrong settings) ─▶ misconfigured
        │          │ exit 3 (its numbers are not finite) ─▶ diverged ─(a long pause)─▶ starting
        │          ▼ any other end
        └─ backoff ┴─ too many in a row ─▶ broken ─(a long pause)─▶ starting

The node goes on gossiping in every state. The child notices the node's death by the end of its
standard input, whatever killed the node.
"""

from __future__ import annotations

import logging
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
from shoal_settings.exits import EXIT_DIVERGED, EXIT_FAILED, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

NODE_RUN = secrets.token_hex(8)
"""Names this process to all trainers it starts: `--no-resume` starts over once for all of them."""


class ChildState(StrEnum):
    """Where the trainer stands, as `shoal debug status` shows it."""

    DISABLED = "disabled"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """It ended and will be started again after a pause."""
    BROKEN = "broken"
    """It ended too often in a row; the next try is minutes away."""
    DIVERGED = "diverged"
    """Its numbers stay not finite. Tried again in minutes: by then the groups of others differ."""
    MISCONFIGURED = "misconfigured"
    """It refused its settings; starting it again would not help."""
    FINISHED = "finished"
    """It completed its rounds."""
    STOPPED = "stopped"
    """It was told to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPolicy:
    """When to start a dead trainer again. Seconds unless named otherwise."""

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
            *python("-m", "policy"),
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

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a trainer running until it finishes, refuses its settings, or is cancelled."""
        task_status.started()
        failures = 0
        while True:
            lived, code = await self._run_once()
            if code == EXIT_OK:
                return self._enter(ChildState.FINISHED)
            if code == EXIT_USAGE:
                log.error("the trainer refused its settings; it is not started again")
                return self._enter(ChildState.MISCONFIGURED)
            if code == EXIT_DIVERGED:
                self._enter(ChildState.DIVERGED)
                pause = self._policy.broken_seconds
            else:
                failures = 1 if lived >= self._policy.healthy_seconds else failures + 1
                pause = self._pause(failures)
            log.warning("the trainer ended (%s); next start in %.1f s", _ending(code), pause)
            await trio.sleep(pause)
            self.restarts += 1

    async def _run_once(self) -> tuple[float, int]:
        self._enter(ChildState.STARTING)
        started = trio.current_time()
        try:
            process = await trio.lowlevel.open_process(
                self._command,
                stdin=subprocess.PIPE,  # its end tells the child that we are gone
                env=environment(),
                start_new_session=True,  # Ctrl-C is ours to handle
            )
        except OSError as error:  # no memory or no process left: a reason to wait, not to die
            log.error("cannot start the trainer: %s", error)
            return 0.0, EXIT_FAILED
        self.pid = process.pid
        self._enter(ChildState.RUNNING)
        try:
            code = await process.wait()
        except trio.Cancelled:
            await self._stop(process)
            self._enter(ChildState.STOPPED)
            raise
        finally:
            self.pid = None
            if process.stdin is not None:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                    await process.stdin.aclose()
        self.last_exit = code
        return trio.current_time() - started, code

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
            log.error("the trainer failed %d times in a row; going on without it", failures)
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


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"

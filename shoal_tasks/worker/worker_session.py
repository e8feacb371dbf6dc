"""One client's session with its worker: what to send, and when to kill and replace it.

    down ──launch, set up──> up ──request, reply──> up ──processor time used up──┐
     ▲                        │                                                  │
     └───────── kill ─────────┴─ deadline passed, exited, or malformed reply <───┘

Both clients use this class; their `Pipes` define how they wait.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, TypeVar

from shoal_base.bounded import LINE_CHARS
from shoal_base.waits import POLL_S
from shoal_tasks.errors import (
    FamilyError,
    ServerUnavailable,
    WorkerProtocolError,
    WorkerUnavailable,
)
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec, spec_to_json
from shoal_tasks.types import Layer, WorkerReport
from shoal_tasks.worker.batching import CallFailure, WorkerCall
from shoal_tasks.worker.frames import Message, encode_message, read_messages
from shoal_tasks.worker.process import Pipes
from shoal_wire.framing import FrameDecoder

R = TypeVar("R")

log = logging.getLogger(__name__)

_NAMED: Final = 3
"""Maximum number of families that a log line about their worker names."""
_MAX_NOTES: Final = 64


class WorkerSession:
    """A client's state of its worker, across restarts of the process."""

    def __init__(self, families: Sequence[FamilySpec], limits: WorkerLimits, pipes: Pipes) -> None:
        self.is_of_a_judge = families[0].is_local
        """True if the worker runs a judge, an operator's own function."""
        first = families[0]
        self.starts_early = first.is_local or first.runs_code or first.runs_user_code
        """True if it is started together with the client, so that errors in its families show at
        once."""
        self.worker_key = families[0].worker_key
        """Key of this worker: `FamilySpec.worker_key`."""
        self.pipes = pipes
        self._families = families
        self._limits = limits
        self._decoder = FrameDecoder()
        self._is_up = False
        self._is_spent = False
        self.report: WorkerReport | None = None
        """The latest worker's report about itself; None before the first was ready."""
        self.num_restarts = 0
        """Number of workers started after the first."""

    async def start(self) -> WorkerReport:
        """Start a worker unless one is up. A failed start is retried with back-off.

        Raises `FamilyError` if it refuses a family, `WorkerUnavailable` if none starts.
        """
        if self._is_up and self.report is not None:
            return self.report
        for attempt in range(self._limits.max_restarts):
            if attempt:
                pause = POLL_S * 2 ** (attempt - 1)
                await self.pipes.pause(min(pause, self._limits.max_backoff_seconds))
            try:
                return await self._start_once()
            except (OSError, WorkerProtocolError):
                await self.stop()
            except (FamilyError, WorkerUnavailable):
                await self.stop()
                raise
        raise WorkerUnavailable("the task worker does not start")

    @property
    def needs_a_start(self) -> bool:
        """True if `bring_up` has to start a worker before the next request."""
        return False

    async def bring_up(self) -> None:
        """Replace a worker that is down or past its time. Raises as `start`."""
        if self._is_spent:
            await self.stop()
        await self.start()

    async def request(self, call: WorkerCall[R]) -> list[R] | CallFailure:
        """Send one call, starting a worker if necessary. After a failure, none is left running.

        Raises as `start`.
        """
        await WorkerSession.bring_up(self)
        try:
            reply = await self._exchange(call.message, self._limits.request_timeout_seconds)
            _check_ok(reply)
            results = call.parse(reply)
        except TimeoutError:
            await self.stop()
            return CallFailure.TIMED_OUT
        except ServerUnavailable:
            raise  # the worker itself is healthy
        except (OSError, WorkerProtocolError, WorkerUnavailable):
            await self.stop()
            return CallFailure.CRASHED
        self._is_spent = cpu_seconds(reply) > self._limits.recycle_cpu_seconds
        return results

    async def stop(self) -> None:
        """Kill the worker. The next start launches a new process."""
        self._is_up = False
        await self.pipes.kill()

    async def _start_once(self) -> WorkerReport:
        if self.report is not None:
            self.num_restarts += 1
        self._decoder = FrameDecoder()
        pid = self.pipes.launch(is_of_a_judge=self.is_of_a_judge)
        message: Message = {
            "op": "setup",
            "families": [spec_to_json(spec) for spec in self._families],
            "limits": asdict(self._limits),
        }
        reply = await self._exchange(message, self._limits.start_timeout_seconds)
        _check_ok(reply)
        is_first = self.report is None
        self.report = WorkerReport(
            pid=pid,
            layers=_layers(reply),
            is_in_sandbox=not self.is_of_a_judge,
            notes=_notes(reply),
        )
        if is_first:
            self._log_sandbox(self.report)
        for note in self.report.notes if is_first else ():
            log.warning("%s", note)
        self._is_up, self._is_spent = True, False
        return self.report

    def _log_sandbox(self, report: WorkerReport) -> None:
        """Log how the worker is isolated, or that it is not."""
        names = ", ".join(repr(spec.name) for spec in self._families[:_NAMED])
        more = ", …" if len(self._families) > _NAMED else ""
        if self.is_of_a_judge:
            files = ", ".join(dict.fromkeys(self._families[0].reward_paths))
            log.warning(
                "family %s: %s runs outside the sandbox, with your rights to files and network "
                "(local = true)",
                names,
                files,
            )
        elif report.is_sandboxed:
            log.info("sandbox of %s%s: %s", names, more, report.sandbox)
        else:
            log.warning("sandbox of %s%s is weak: %s", names, more, report.sandbox)

    async def _exchange(self, message: Message, seconds: float) -> Message:
        await self.pipes.send(encode_message(message), seconds)
        replies: list[Message] = []
        while not replies:
            if not (data := await self.pipes.receive()):
                raise BrokenPipeError("the task worker is gone")
            replies = read_messages(self._decoder, data)
        if len(replies) > 1:
            raise WorkerProtocolError("the worker sent more than one reply")
        return replies[0]


def _check_ok(reply: Message) -> None:
    """Raise the exception that a worker's error reply stands for."""
    if reply.get("ok") is True:
        return
    kind, reason = reply.get("kind"), str(reply.get("error"))[:LINE_CHARS]
    if kind == FamilyError.__name__:
        raise FamilyError(reason)
    if kind == ServerUnavailable.__name__:
        raise ServerUnavailable(reason)
    raise WorkerUnavailable(f"task worker: {kind}: {reason}")


def _layers(reply: Message) -> tuple[Layer, ...]:
    """Parse the worker's report about its sandbox."""
    rows: Any = reply.get("layers")
    try:
        return tuple(
            Layer(name=str(row["name"]), active=row["active"] is True, detail=str(row["detail"]))
            for row in rows
        )
    except (TypeError, KeyError):
        raise WorkerProtocolError("report has no layers") from None


def _notes(reply: Message) -> tuple[str, ...]:
    """Parse the worker's notes to the families' authors."""
    notes = reply.get("notes", [])
    if not isinstance(notes, list) or not all(isinstance(one, str) for one in notes):
        raise WorkerProtocolError("report has malformed notes")
    return tuple(str(one)[:LINE_CHARS] for one in notes[:_MAX_NOTES])


def cpu_seconds(reply: Message) -> float:
    """Return the processor time that the worker has used; 0 if the reply has none."""
    value = reply.get("cpu_seconds")
    # Not converted to float, which fails on an integer of a thousand digits.
    return value if isinstance(value, int | float) else 0.0

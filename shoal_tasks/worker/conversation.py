"""One client's talk with its worker: what to send, and when to kill it and start another.

    down ──launch, set up──> up ──request, reply──> up ──processor time used up──┐
     ▲                        │                                                  │
     └───────── kill ─────────┴─ deadline passed, gone, unfit, or nonsense <─────┘

Sans-IO: the methods of `Conversation` are generators of steps. Whoever runs one does each `Step`
and sends back its outcome; a step that fails has an OSError as its outcome, which past a deadline
is a TimeoutError. What a method returns is what the client wanted.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from shoal_tasks.errors import FamilyError, ServerAway, WorkerProtocolError, WorkerUnavailable
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec, spec_to_json
from shoal_tasks.types import Layer, WorkerReport
from shoal_tasks.worker.frames import Message, WorkerFrameDecoder, encode_frame
from shoal_tasks.worker.plan import CallFailure, WorkerCall

R = TypeVar("R")

_FIRST_PAUSE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a process. Its outcome is the pid."""

    is_of_a_judge: bool
    """True if it runs outside the sandbox, with the operator's environment."""


@dataclass(frozen=True, slots=True)
class Send:
    """Write to the process. The deadline is for this and for every `Receive` up to the next."""

    data: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class Receive:
    """Read from the process. Its outcome is what there is, and nothing at the end of file."""


@dataclass(frozen=True, slots=True)
class Kill:
    """End the process and collect its status; harmless without one."""


Step = Pause | Launch | Send | Receive | Kill
Outcome = bytes | int | OSError | None
Steps = Generator[Step, Outcome, R]


class Conversation:
    """A client's state about its worker, over all the processes that the worker has had."""

    def __init__(self, families: Sequence[FamilySpec], limits: WorkerLimits) -> None:
        self.is_of_a_judge = families[0].is_local
        """True if the worker runs a judge of the operator's own."""
        self.lane = families[0].lane
        """Name of this worker of the client: `FamilySpec.lane`."""
        self._families = families
        self._limits = limits
        self._decoder = WorkerFrameDecoder()
        self._is_up = False
        self._is_spent = False
        self.report: WorkerReport | None = None
        """The latest worker's report about itself; None before the first was ready."""
        self.num_restarts = 0
        """Workers started after the first."""

    def start(self) -> Steps[WorkerReport]:
        """Bring a worker up unless one is: a start that fails is tried again after a longer pause.

        Raises `FamilyError` where it refuses a family, `WorkerUnavailable` where none comes up.
        """
        if self._is_up and self.report is not None:
            return self.report
        for attempt in range(self._limits.max_restarts):
            if attempt:
                pause = _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
                yield Pause(min(pause, self._limits.max_backoff_seconds))
            try:
                return (yield from self._start_once())
            except (OSError, WorkerProtocolError):
                yield from self.stop()
            except (FamilyError, WorkerUnavailable):
                yield from self.stop()
                raise
        raise WorkerUnavailable("the task worker does not start")

    @property
    def needs_a_start(self) -> bool:
        """True if a worker has to be brought up before the next request, by `bring_up`."""
        return False

    def bring_up(self) -> Steps[None]:
        """Replace a worker that is down, or has used up its time. Raises as `start`."""
        if self._is_spent:
            yield from self.stop()
        yield from self.start()

    def request(self, call: WorkerCall[R]) -> Steps[list[R] | CallFailure]:
        """Ask a worker, brought up where none is; after a failure none is.

        Raises as `start`.
        """
        yield from Conversation.bring_up(self)
        try:
            reply = yield from self._exchange(call.message, self._limits.request_timeout_seconds)
            _check_ok(reply)
            results = call.parse(reply)
        except TimeoutError:
            yield from self.stop()
            return CallFailure.TIMED_OUT
        except ServerAway:
            raise  # the worker itself is well
        except (OSError, WorkerProtocolError, WorkerUnavailable):
            yield from self.stop()
            return CallFailure.CRASHED
        self._is_spent = cpu_seconds(reply) > self._limits.recycle_cpu_seconds
        return results

    def stop(self) -> Steps[None]:
        """End the worker; the next start is another's."""
        self._is_up = False
        yield Kill()

    def _start_once(self) -> Steps[WorkerReport]:
        if self.report is not None:
            self.num_restarts += 1
        self._decoder = WorkerFrameDecoder()
        pid = yield from _done(Launch(self.is_of_a_judge))
        assert isinstance(pid, int)
        message: Message = {
            "op": "setup",
            "families": [spec_to_json(spec) for spec in self._families],
            "limits": asdict(self._limits),
        }
        reply = yield from self._exchange(message, self._limits.start_timeout_seconds)
        _check_ok(reply)
        self.report = WorkerReport(pid=pid, layers=_layers(reply))
        self._is_up, self._is_spent = True, False
        return self.report

    def _exchange(self, message: Message, seconds: float) -> Steps[Message]:
        yield from _done(Send(encode_frame(message), seconds))
        while (reply := self._decoder.next_message()) is None:
            data = yield from _done(Receive())
            if not isinstance(data, bytes) or not data:
                raise BrokenPipeError("the task worker is gone")
            self._decoder.feed(data)
        return reply


def _done(step: Step) -> Steps[Outcome]:
    outcome = yield step
    if isinstance(outcome, OSError):
        raise outcome
    return outcome


def _check_ok(reply: Message) -> None:
    """Raise what a refusal of the worker means."""
    if reply.get("ok") is True:
        return
    kind, reason = reply.get("kind"), str(reply.get("error"))[:500]
    if kind == "FamilyError":
        raise FamilyError(reason)
    if kind == "ServerAway":
        raise ServerAway(reason)
    raise WorkerUnavailable(f"task worker: {kind}: {reason}")


def _layers(reply: Message) -> tuple[Layer, ...]:
    """Read the worker's report about its sandbox."""
    rows: Any = reply.get("layers")
    try:
        return tuple(
            Layer(name=str(row["name"]), active=row["active"] is True, detail=str(row["detail"]))
            for row in rows
        )
    except (TypeError, KeyError):
        raise WorkerProtocolError("report has no layers") from None


def cpu_seconds(reply: Message) -> float:
    """Processor time the worker has used so far; 0 where it does not say."""
    value = reply.get("cpu_seconds")
    # Not made a float: an integer of a thousand digits cannot be one.
    return value if isinstance(value, int | float) else 0.0

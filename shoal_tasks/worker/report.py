"""The message that starts a worker, and the worker's report about itself. Sans-IO."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shoal_tasks.errors import FamilyError, ServerAway, WorkerProtocolError, WorkerUnavailable
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec, spec_to_json
from shoal_tasks.worker.frames import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of the worker's sandbox, as the worker reported it."""

    name: str
    active: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """A worker's report about itself when it is ready."""

    pid: int
    layers: tuple[Layer, ...]


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
    return WorkerReport(pid=pid, layers=layers)


def check_ok(reply: Message) -> None:
    """Raise what a refusal of the worker means."""
    if reply.get("ok") is True:
        return
    reason = str(reply.get("error"))[:500]
    if reply.get("kind") == "FamilyError":
        raise FamilyError(reason)
    if reply.get("kind") == "ServerAway":
        raise ServerAway(reason)
    raise WorkerUnavailable(f"task worker: {reply.get('kind')}: {reason}")


def cpu_seconds(reply: Message) -> float:
    """Processor time the worker has used so far; 0 where it does not say."""
    value = reply.get("cpu_seconds")
    # Not made a float: an integer of a thousand digits cannot be one.
    return value if isinstance(value, int | float) else 0.0

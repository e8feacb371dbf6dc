"""The path of one rollout group through a node: calls, functions, files and types.

Two whole nodes on a simulated network, under virtual time, so that one seed gives one trace. Real
are the receiver's gossip over byte streams, validation, buffer, store and the service of its
socket; simulated are the host below the streams and the task worker. One node publishes a batch of
one group. The receiver's calls of product code are counted with `sys.setprofile`:

    wire    from the stream of gossip to the group in the buffer
    lease   from the trainer's request for a group to its reply
    end     the trainer's report of rewards, which ends the lease, and the IPC messages of both

A coroutine counts once, however often it is resumed. `file_changes` counts the calls whose code is
in another file than that of the call before. `types` are the classes of the records (dataclasses,
named tuples and protobuf messages) that were passed and contained the group's text or envelope. The
first batch is not traced: it imports modules and fills caches.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import trio
from google.protobuf.message import Message as ProtobufMessage

from benchmarks.harness import ROOT, Goal, Options, Report, at_most, main, note
from shoal_ipc import messages as m
from tests.support import factories as make
from tests.support.simulated_node import HOLDER, NodeSettings, SimulatedNode, rewards_of
from tests.support.simulated_swarm import Plan, World, simulate
from tests.support.streamed_host import virtual_gossip

SEED = 4
_PRODUCT = tuple(
    f"{ROOT}/{folder}/"
    for folder in ("p2p", "proto", "shoal_base", "shoal_settings", "shoal_tasks")
)
_TEXT = "the answer is 7, in words that occur once"
_NEVER_S = 1e9
_START_S, _SETTLE_S, _STEP_S, _MAX_STEPS = 30.0, 10.0, 0.001, 30_000
_DEPTH, _ITEMS = 6, 8
_SHOWN = 12


class CallTrace:
    """Records the product's calls in a task and the tasks below it."""

    def __init__(self, root: trio.lowlevel.Task) -> None:
        self._root = root
        self._belongs: dict[trio.lowlevel.Task, bool] = {}
        self._codes = dict[CodeType, bool]()
        self.frames: dict[int, FrameType] = {}
        """Each call once: a frame that is kept is resumed under the same id."""
        self.records: dict[int, Any] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the tasks call in the meantime."""
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code not in self._codes:
            name = code.co_filename
            self._codes[code] = name.startswith(_PRODUCT) and "_pb2" not in name
        if not self._codes[code] or not self._is_running():
            return
        if event == "call":
            self.frames.setdefault(id(frame), frame)
            values = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
        else:
            values = [result]
        for value in values:
            if _is_record(value):
                self.records.setdefault(id(value), value)

    def _is_running(self) -> bool:
        """Return whether the current task is one of them."""
        try:
            task = trio.lowlevel.current_task()
        except RuntimeError:
            return False
        if task not in self._belongs:
            above: trio.lowlevel.Task | None = task
            while above is not None and above is not self._root:
                above = None if above.parent_nursery is None else above.parent_nursery.parent_task
            self._belongs[task] = above is not None
        return self._belongs[task]

    def codes(self) -> list[CodeType]:
        """Return the code of each call, in order. Comprehensions are part of their function."""
        return [
            frame.f_code
            for frame in self.frames.values()
            if not frame.f_code.co_name.startswith("<") or frame.f_code.co_name == "<lambda>"
        ]

    def types(self, *needles: str | bytes) -> list[str]:
        """Return the records' classes that contain one of `needles`."""
        found = {type(one).__name__ for one in self.records.values() if _contains(one, needles)}
        return sorted(found)


def _task_of(node: SimulatedNode) -> trio.lowlevel.Task:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    waiting = [root]
    while waiting:
        task = waiting.pop()
        frame = getattr(task.coro, "cr_frame", None)
        if task.name.endswith("World._live") and frame and frame.f_locals.get("node") is node:
            return task
        waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    raise RuntimeError("the node does not run")


def _is_record(value: Any) -> bool:
    kind = type(value)
    if not kind.__module__.startswith("shoal_"):
        return False
    return (
        isinstance(value, ProtobufMessage)
        or dataclasses.is_dataclass(kind)
        or (isinstance(value, tuple) and hasattr(kind, "_fields"))
    )


def _contains(value: Any, needles: Sequence[str | bytes], depth: int = _DEPTH) -> bool:
    if isinstance(value, str | bytes):
        return any(type(one) is type(value) and one in value for one in needles)  # type: ignore[operator]
    if depth == 0:
        return False
    inner: list[Any] = []
    if isinstance(value, ProtobufMessage):
        inner = [field for _, field in value.ListFields()]
    elif dataclasses.is_dataclass(value):
        inner = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    elif isinstance(value, list | tuple):
        inner = list(value[:_ITEMS])
    return any(_contains(one, needles, depth - 1) for one in inner)


class TracedRun:
    """Publishes at one node, and traces the other."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}

    async def script(self, world: World) -> None:
        """Publish twice; trace the second batch."""
        await trio.sleep(_START_S)
        sender, receiver = world.up("honest")
        for number in range(2):
            wire, lease, end = (
                CallTrace(root)
                for root in (_task_of(receiver), *2 * [trio.lowlevel.current_task()])
            )
            with wire.recording():
                envelope = await _publish(sender, number)
                await _until_buffered(receiver)
            await trio.sleep(_SETTLE_S)
            with lease.recording():
                reply = await _ask(receiver, m.Sample(num_external=1, lease_seconds=60.0))
            assert isinstance(reply, m.SampleReply)
            (group,) = reply.groups
            earned = m.GroupReport(
                group_id=group.group_id,
                publisher=group.publisher,
                rewards=rewards_of(group.group),
            )
            bodies = [m.Report(groups=(earned,), consumed_ids=(group.group_id,))]
            with end.recording():
                for body in bodies:
                    await _ask(receiver, body)
            self.results = {
                "wire": _figures([wire], envelope),
                "lease": _figures([lease], envelope),
                "wire_to_trainer": _figures([wire, lease], envelope),
                "end": {**_figures([end], envelope), "ipc_messages": 1 + len(bodies)},
            }
            await trio.sleep(_SETTLE_S)


async def _publish(node: SimulatedNode, number: int) -> bytes:
    group = make.group(1000 + number, (_TEXT, "no"))
    answer = await _ask(node, make.publish([group], key=f"{number}".encode(), round=number + 1))
    assert isinstance(answer, m.PublishReply)
    envelope = await node.live.store.envelope_part(answer.batch_id, 0, 1 << 20)
    assert envelope is not None
    node.observer.published(node, envelope, 1)  # else the simulation reports a forged batch
    return envelope


async def _until_buffered(node: SimulatedNode) -> None:
    for _ in range(_MAX_STEPS):
        if any(node.live.buffer.external_groups()):
            return
        await trio.sleep(_STEP_S)
    raise RuntimeError("the batch did not arrive")


async def _ask(node: SimulatedNode, body: m.Body) -> m.Body:
    answer = await node.live.service.handle(HOLDER, m.Role.TRAINER, body)
    assert not isinstance(answer, m.Failure), answer.reason
    return answer


def _figures(traces: Sequence[CallTrace], envelope: bytes) -> dict[str, Any]:
    codes = [code for trace in traces for code in trace.codes()]
    files = [code.co_filename for code in codes]
    types = sorted({name for trace in traces for name in trace.types(_TEXT, envelope)})
    for name, count in Counter(_name_of(code) for code in codes).most_common(_SHOWN):
        note(f"    {count:4d} calls  {name}")
    return {
        "calls": len(codes),
        "functions": len(set(codes)),
        "files": len(set(files)),
        "file_changes": sum(one != other for one, other in pairwise(files)),
        "num_types": len(types),
        "types": ", ".join(types),
    }


def _name_of(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_qualname}"


def measure(options: Options) -> Report:
    """Trace one batch. The trace does not depend on the machine, so `--quick` changes nothing."""
    run = TracedRun()
    settings = NodeSettings(round_s=_NEVER_S, streamed=True)
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder, virtual_gossip():
        simulate(SEED, Plan(honest=2, node=settings), Path(folder), run.script, memoises=False)
    whole, end = run.results["wire_to_trainer"], run.results["end"]
    goals: list[Goal] = [
        at_most("calls from the wire to the trainer", whole["calls"], 220),
        at_most("files from the wire to the trainer", whole["files"], 16),
        at_most("IPC messages a group", end["ipc_messages"], 2),
    ]
    return Report(results=run.results, goals=goals)


if __name__ == "__main__":
    sys.exit(main("path_trace", __doc__ or "", measure))

"""The task worker's process: ``python -m shoal_tasks.worker``, driven by frames on stdin.

    start ──> set-up frame read ──> generators preloaded ──> sandbox entered ──> families built
                                                                                     │
    end of stdin: exit <── answer <── generate / score / hello <── frame <───────────┘

The set-up's configurations come from a swarm, so they are used only inside the sandbox; before
it, only the names of the generators are, and those are on a list. Everything after that reads
frames from stdin and writes frames to what stdout was; stdout itself leads nowhere, so a stray
print cannot break a frame.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

from shoal_tasks.errors import FamilyError
from shoal_tasks.limits import MAX_FAMILIES, MAX_QUESTION_CHARS, TIMED_OUT_ERROR, WorkerLimits
from shoal_tasks.rows import read_rows_file
from shoal_tasks.sandbox import layers as sandbox
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import (
    MATH_VERIFY,
    ROWS_GENERATOR,
    FamilySpec,
    config_digest,
    question_digest,
    spec_from_json,
)
from shoal_tasks.swarm import installed_version
from shoal_tasks.worker.frames import FrameDecoder, Message, encode_frame
from shoal_tasks.worker.generate import (
    INSTALLED_VERSION,
    GeneratedItem,
    RowTasks,
    TaskStream,
    import_sympy,
    preload,
)
from shoal_tasks.worker.item_limit import ItemLimit, ItemTimeout
from shoal_tasks.worker.scoring import score
from shoal_wire.types import FinishReason

_READ_BYTES = 1 << 16
_MAX_METADATA_CHARS = 64 * 1024


class Worker:
    """Answers requests about the families it was configured with."""

    def __init__(
        self,
        specs: tuple[FamilySpec, ...],
        limits: WorkerLimits,
        guard: AuditGuard,
        layers: tuple[sandbox.LayerReport, ...],
        files: dict[str, bytes],
    ) -> None:
        """Build all families. Raises `FamilyError` naming the first that cannot be built."""
        self._files = files
        self._guard = guard
        self._layers = layers
        self._limit = ItemLimit(limits.item_cpu_seconds)
        self._streams: dict[str, TaskStream | RowTasks] = {}
        self._last: tuple[tuple[str, int, int], GeneratedItem] | None = None
        for spec in specs:
            self._streams[spec.name] = self._build(spec)

    def _build(self, spec: FamilySpec) -> TaskStream | RowTasks:
        installed = installed_version(spec.verifier)
        if spec.verifier_version != installed:
            raise FamilyError(
                f"family {spec.name!r} needs {spec.verifier} {spec.verifier_version}, "
                f"installed is {installed or 'none'}"
            )
        try:
            if spec.generator == ROWS_GENERATOR:
                return RowTasks(spec, self._files.pop(spec.name))
            with self._limit:
                return TaskStream(spec)
        except FamilyError:
            raise
        except (Exception, ItemTimeout) as error:  # noqa: BLE001  the library raises all kinds
            kind = type(error).__name__
            raise FamilyError(f"family {spec.name!r} cannot be built: {kind}: {error}") from None

    def answer(self, message: Message) -> Message:
        """The reply to one request. Raises ValueError and kin on a malformed one."""
        operations: dict[str, Callable[[Any], Message]] = {
            "hello": self._hello,
            "generate": self._generate,
            "score": self._score,
        }
        operation = operations[str(message["op"])]
        reply = operation(message)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {**reply, "ok": True, "cpu_seconds": usage.ru_utime + usage.ru_stime}

    def _hello(self, _message: Message) -> Message:
        return {
            "verifier_version": INSTALLED_VERSION,
            "python": sys.version.split()[0],
            "families": {
                name: config_digest(stream.spec).hex() for name, stream in self._streams.items()
            },
            "layers": [
                {"name": layer.name, "active": layer.active, "detail": layer.detail}
                for layer in self._layers
            ],
        }

    def _item(self, wanted: dict[str, Any]) -> GeneratedItem:
        """The item of one request. A group's completions come in a row, so the last is kept."""
        key = (str(wanted["family"]), int(wanted["seed"]), int(wanted["index"]))
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        item = self._streams[key[0]].item(key[1], key[2])
        self._last = (key, item)
        return item

    def _generate(self, message: Any) -> Message:
        return {"items": [self._generate_one(one, message["want"]) for one in message["items"]]}

    def _generate_one(self, wanted: dict[str, Any], fields: list[str]) -> Message:
        try:
            with self._limit:
                item = self._item(wanted)
                if len(item.question) > MAX_QUESTION_CHARS:
                    return {"error": "question too long"}
                return {name: _FIELDS[name](item) for name in fields}
        except ItemTimeout:
            return {"error": TIMED_OUT_ERROR}
        except Exception as error:  # noqa: BLE001  generators raise all kinds on an unlucky draw
            return {"error": f"{type(error).__name__}: {error}"[:200]}

    def _score(self, message: Any) -> Message:
        return {"results": [self._score_one(one) for one in message["items"]]}

    def _score_one(self, wanted: dict[str, Any]) -> Message:
        reward = 0.0
        try:
            with self._limit:
                item = self._item(wanted)
                spec = self._streams[str(wanted["family"])].spec
                self._guard.numbers_only = spec.verifier == MATH_VERIFY
                self._guard.scoring = True
                finish_reason = FinishReason(wanted["finish_reason"])
                reward = score(spec, item, str(wanted["text"]), finish_reason)
        except ItemTimeout:
            pass
        except Exception:  # noqa: BLE001  an item that cannot be generated has no right answer
            reward = 0.0
        finally:
            self._guard.scoring = False
        # Some scorers swallow every exception, the time-out too: the limit's own note decides.
        if self._limit.expired:
            self._last = None
            return {"reward": 0.0, "timed_out": True}
        return {"reward": reward, "timed_out": False}


def _metadata(item: GeneratedItem) -> Message:
    text = json.dumps(item.entry.get("metadata", {}), default=str, skipkeys=True)
    if len(text) > _MAX_METADATA_CHARS:
        return {}
    metadata: Message = json.loads(text)
    return metadata


_FIELDS: dict[str, Callable[[GeneratedItem], Any]] = {
    "question": lambda item: item.question,
    "answer": lambda item: item.answer,
    "digest": lambda item: question_digest(item.question).hex(),
    "metadata": _metadata,
}


class FramePipe:
    """Blocking frames over the two inherited pipes."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._output_fd = os.dup(1)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)

    def read(self) -> Message | None:
        """The next message; None when the parent closed the pipe."""
        while (message := self._decoder.next_message()) is None:
            data = os.read(0, _READ_BYTES)
            if not data:
                return None
            self._decoder.feed(data)
        return message

    def write(self, message: Message) -> None:
        view = memoryview(encode_frame(message))
        while view:
            view = view[os.write(self._output_fd, view) :]


def _set_up(message: Message, parent_pid: int | None) -> Worker:
    families: Any = message["families"]
    if not 0 < len(families) <= MAX_FAMILIES:
        raise FamilyError(f"need 1 to {MAX_FAMILIES} families")
    specs = tuple(spec_from_json(family) for family in families)
    if len({spec.name for spec in specs}) != len(specs):
        raise FamilyError("two families have one name")
    options: Any = message.get("limits", {})
    limits = WorkerLimits(**options)
    # What a family needs from the disk, while there is one. The paths are this machine's own.
    files = {s.name: read_rows_file(s.path) for s in specs if s.generator == ROWS_GENERATOR}
    preload(spec.generator for spec in specs if spec.generator != ROWS_GENERATOR)
    versions = {spec.verifier: installed_version(spec.verifier) for spec in specs}
    if versions.get(MATH_VERIFY):
        from shoal_tasks.worker.math_answers import warm_up

        import_sympy()
        warm_up()
    guard = AuditGuard()
    gc.collect()
    gc.freeze()
    layers = sandbox.enter(limits, guard, parent_pid=parent_pid)
    return Worker(specs, limits, guard, layers, files)


def serve(pipe: FramePipe, parent_pid: int | None) -> None:
    """Answer frames until the parent closes the pipe."""
    worker: Worker | None = None
    while (message := pipe.read()) is not None:
        try:
            if worker is None:
                worker = _set_up(message, parent_pid)
                reply = worker.answer({"op": "hello"})
            else:
                reply = worker.answer(message)
        except Exception as error:  # noqa: BLE001  the parent learns of it and decides
            reply = {"ok": False, "kind": type(error).__name__, "error": str(error)[:500]}
        pipe.write(reply)


def main() -> None:
    """Entry point of the child process."""
    parser = argparse.ArgumentParser(prog="shoal_tasks.worker")
    parser.add_argument("--parent-pid", type=int, default=None)
    arguments = parser.parse_args()
    serve(FramePipe(), arguments.parent_pid)


if __name__ == "__main__":
    main()

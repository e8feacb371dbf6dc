"""The life cycle of the worker process: requests on stdin, replies on the original stdout.

    start ──> set-up frame read ──> generators preloaded ──> sandbox entered ──> families built
                                                                                     │
    end of stdin: exit <── reply <── item / score / score_group / play <── frame <───┘

The configurations come from a swarm, so they are used only inside the sandbox. Before it, only the
names of generators are used, after a check against a list. Replies go to a duplicate of stdout, and
stdout itself leads to the null device, so a stray print cannot break a frame.
"""

from __future__ import annotations

import gc
import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from shoal_base.bounded import LINE_CHARS, PIECE_BYTES
from shoal_base.waits import RETRY_S
from shoal_tasks.data_files import read_file
from shoal_tasks.errors import FamilyError
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.sandbox import layers as sandbox
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import MATH_VERIFY, VERIFIER, FamilySpec, JsonValue
from shoal_tasks.swarm import installed_version
from shoal_tasks.types import Layer, WorkerReport
from shoal_tasks.unit_tests import fork_server
from shoal_tasks.unit_tests.runner import TestRunner
from shoal_tasks.worker.answering import RequestAnswerer
from shoal_tasks.worker.frames import Message, encode_message, read_messages
from shoal_tasks.worker.generate import preload
from shoal_tasks.worker.late_imports import LateImports
from shoal_tasks.worker.open_env import ServerPlayer, resolve_servers, socket_addresses
from shoal_tasks.worker.text_arena import preload_games
from shoal_tasks.worker.user_code import preload_imports
from shoal_wire.framing import FrameDecoder

_REST_MS: Final = 1000 * RETRY_S
"""Milliseconds without a request after which the worker releases server sessions."""


class FramePipe:
    """Blocking frames over the two inherited pipes."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._output_fd = os.dup(1)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)

    def read(self, rest: Callable[[], None]) -> Message | None:
        """Return the next message; None if the client closed the pipe.

        `rest` is called if no message arrives for a while.
        """
        poll = select.poll()
        poll.register(0, select.POLLIN)
        if not poll.poll(_REST_MS):
            rest()
        messages: list[Message] = []
        while not messages:
            if not (data := os.read(0, PIECE_BYTES)):
                return None
            messages = read_messages(self._decoder, data)
        return messages[0]

    def write(self, message: Message) -> None:
        view = memoryview(encode_message(message))
        while view:
            view = view[os.write(self._output_fd, view) :]


def _set_up(
    message: Message, parent_pid: int | None, *, is_weak_accepted: bool = False
) -> tuple[RequestAnswerer, tuple[Layer, ...]]:
    families: Any = message["families"]
    specs = tuple(FamilySpec(**fields) for fields in families)
    if any(spec.is_local for spec in specs) and not all(spec.is_local for spec in specs):
        raise FamilyError("a judge's worker cannot have other families: it is outside the sandbox")
    options: Any = message["limits"]
    limits = WorkerLimits(**options)
    if any(spec.runs_code for spec in specs) and not all(spec.runs_code for spec in specs):
        raise FamilyError("a worker with unit tests cannot have other families")
    # Before any file is read: the processes that run completions must not hold the tests.
    control = fork_server.start(limits.memory_bytes) if specs[0].runs_code else None
    runner = None if control is None else TestRunner(control)
    # Read what the families need while the disk is readable. The paths are local ones.
    files = {spec.name: _files_of(spec) for spec in specs if spec.is_of_a_file}
    preload(spec.generator for spec in specs if spec.verifier == VERIFIER)
    preload_games(specs)
    places = resolve_servers(specs)
    servers = {
        spec.name: ServerPlayer(spec, places[spec.path]) for spec in specs if spec.is_on_a_server
    }
    versions = {spec.verifier: installed_version(spec.verifier) for spec in specs}
    if versions.get(MATH_VERIFY):
        from shoal_tasks.worker.math_answers import warm_up

        warm_up()
    guard = AuditGuard(socket_addresses(places.values()))
    late = LateImports(guard) if files else None
    gc.collect()
    gc.freeze()
    is_of_a_judge = specs[0].is_local
    layers = sandbox.enter(limits, guard, parent_pid=parent_pid, is_of_a_judge=is_of_a_judge)
    if not is_weak_accepted:
        _check_isolation(specs, layers)
    if late is not None and not is_of_a_judge:
        sys.meta_path.append(late)
    own = runner.layers if runner else ()
    return RequestAnswerer(specs, limits, guard, files, servers, runner), (*layers, *own)


def _files_of(spec: FamilySpec) -> tuple[bytes, tuple[bytes, ...]]:
    """Return a family's rows or environment, and its reward's Python files.

    Imports what the Python files import.
    """
    if spec.is_environment:
        source = read_file(Path(spec.path))
        preload_imports(source, spec.path)
        return source, ()
    rows = read_file(Path(spec.path))
    sources = tuple(read_file(Path(path)) for path in spec.reward_paths)
    for path, source in zip(spec.reward_paths, sources, strict=True):
        preload_imports(source, path)
    return rows, sources


def _check_isolation(specs: Sequence[FamilySpec], layers: Sequence[Layer]) -> None:
    """Raise `FamilyError` if a user's file would run without isolation."""
    report = WorkerReport(pid=0, layers=tuple(layers))
    if report.is_sandboxed:
        return
    for spec in specs:
        if spec.runs_user_code:
            raise FamilyError(
                f"family {spec.name!r}: this machine cannot isolate its Python file; "
                "--weak-sandbox, or SHOAL_WEAK_SANDBOX=1, runs it without (docs/sandbox.md). "
                f"In force: {report.sandbox}"
            )


def serve(pipe: FramePipe, parent_pid: int | None, *, is_weak_accepted: bool = False) -> None:
    """Answer frames until the client closes the pipe.

    `is_weak_accepted`: run users' files even if the machine cannot isolate them.
    """
    worker: RequestAnswerer | None = None
    reply: Message
    while (message := pipe.read(worker.release_idle if worker else lambda: None)) is not None:
        try:
            if worker is None:
                worker, layers = _set_up(message, parent_pid, is_weak_accepted=is_weak_accepted)
                found: list[JsonValue] = [asdict(layer) for layer in layers]
                notes: list[JsonValue] = [note[:LINE_CHARS] for note in worker.notes]
                reply = {"ok": True, "layers": found, "notes": notes}
            else:
                reply = worker.answer(message)
        except Exception as error:  # noqa: BLE001  the client gets the error and decides
            known = FamilyError if isinstance(error, FamilyError) else type(error)
            reply = {"ok": False, "kind": known.__name__, "error": str(error)[:LINE_CHARS]}
        pipe.write(reply)

"""A task worker in the test's own process, for tests that need neither sandbox nor process.

The worker's own code builds families and reads, answers and writes frames. A real worker takes 0.2
s of processor time to start, and 0.7 s with families of reasoning_gym.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from shoal_tasks.limits import WorkerLimits
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker import serving
from shoal_tasks.worker.answering import RequestAnswerer
from shoal_tasks.worker.batching import CallFailure, WorkerCall
from shoal_tasks.worker.frames import Message, encode_message, read_messages
from shoal_tasks.worker.open_env import ServerPlayer, resolve_servers
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_tasks.worker.text_arena import preload_games
from shoal_wire.framing import FrameDecoder

R = TypeVar("R")


class HereWorker(SyncTaskWorker):
    """The trainer's client without a process. A family's code affects the test's process.

    Raises `FamilyError` if a family is refused, which a real worker does at its start.
    """

    def __init__(
        self, families: Sequence[FamilySpec], *, limits: WorkerLimits | None = None
    ) -> None:
        super().__init__(families, limits=limits)
        specs, places = tuple(families), resolve_servers(tuple(families))
        preload_games(specs)
        files = {spec.name: serving._files_of(spec) for spec in specs if spec.is_of_a_file}
        servers = {
            spec.name: ServerPlayer(spec, places[spec.path])
            for spec in specs
            if spec.is_on_a_server
        }
        self.answerer = RequestAnswerer(
            specs, limits or WorkerLimits(), AuditGuard(), files, servers
        )

    def start(self) -> Any:
        """It runs."""

    def close(self) -> None:
        """Release what the families hold."""
        self.answerer.release_idle()

    async def _ask(self, call: WorkerCall[R]) -> list[R] | CallFailure:
        return call.parse(_sent(self.answerer.answer(_sent(call.message))))


def _sent(message: Message) -> Message:
    """Return a message as the other end reads it."""
    (read,) = read_messages(FrameDecoder(), encode_message(message))
    return read

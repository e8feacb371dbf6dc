"""A worker session without a process: what is sent, the deadlines, and the pauses.

`test_clients` tests failing workers, with processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import trio

from shoal_tasks.errors import WorkerUnavailable
from shoal_tasks.families import EASY
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.availability import build_sessions
from shoal_tasks.worker.batching import WorkerCall
from shoal_tasks.worker.frames import Message, encode_message, read_messages
from shoal_tasks.worker.sync import BlockingPipes
from shoal_tasks.worker.trio_client import TrioPipes
from shoal_tasks.worker.worker_session import WorkerSession
from shoal_wire.framing import FrameDecoder
from tests.tasks.families import JUDGED

LIMITS = WorkerLimits(
    start_timeout_seconds=60.0, request_timeout_seconds=15.0, max_restarts=6, max_backoff_seconds=1
)
READY = encode_message({"ok": True, "layers": []})
CALL: WorkerCall[str] = WorkerCall(message={"op": "ask"}, parse=lambda _reply: ["result"])


class Script(BlockingPipes):
    """Pipes to nowhere: `receive` returns `reads` one by one, or raises those that are errors."""

    def __init__(self, *reads: bytes | OSError) -> None:
        super().__init__()
        self.reads = list(reads)
        self.launched: list[bool] = []
        self.sent: list[tuple[Message, float]] = []
        self.pauses: list[float] = []

    def launch(self, *, is_of_a_judge: bool) -> int:
        self.launched.append(is_of_a_judge)
        return 7

    async def send(self, data: bytes, seconds: float) -> None:
        (message,) = read_messages(FrameDecoder(), data)
        self.sent.append((message, seconds))

    async def receive(self) -> bytes:
        read = self.reads.pop(0)
        if isinstance(read, OSError):
            raise read
        return read

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def test_a_worker_is_launched_set_up_and_called_within_the_deadlines() -> None:
    reply = [bytes([byte]) for byte in encode_message({"ok": True})]  # in any pieces
    script = Script(READY, *reply, *reply)
    talk = WorkerSession(EASY, LIMITS, script)
    for _ in range(2):
        assert trio.run(talk.request, CALL) == ["result"]
    assert [(sent["op"], seconds) for sent, seconds in script.sent] == [
        ("setup", 60.0),
        ("ask", 15.0),
        ("ask", 15.0),
    ]
    assert talk.report is not None and (talk.report.pid, talk.num_restarts) == (7, 0)


def test_pauses_between_starts_double_up_to_a_limit_and_then_it_is_given_up() -> None:
    script = Script(TimeoutError(), b"", BrokenPipeError(), b"\xff" * 8, b"", b"")
    with pytest.raises(WorkerUnavailable, match="does not start"):
        trio.run(WorkerSession(EASY, LIMITS, script).start)
    assert script.pauses == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert len(script.launched) == 6


def test_a_judge_has_a_worker_of_its_own_with_limits_of_its_own() -> None:
    talks = build_sessions([JUDGED, *EASY], LIMITS, lambda: Script(READY))
    assert list(talks) == ["", "/judge.py"], "the others' worker is the first"
    for talk, families, limits in (
        (talks[""], EASY, LIMITS),
        (talks["/judge.py"], (JUDGED,), LIMITS.of_a_judge()),
    ):
        trio.run(talk.start)
        script: Any = talk.pipes
        assert script.launched == [limits != LIMITS]
        ((message, _),) = script.sent
        assert message["limits"] == asdict(limits)
        assert tuple(FamilySpec(**fields) for fields in message["families"]) == families


@pytest.mark.parametrize("new_pipes", [BlockingPipes, TrioPipes])
def test_pipes_without_a_process_are_closed_as_often_as_one_likes(
    new_pipes: Callable[[], BlockingPipes | TrioPipes],
) -> None:
    async def main() -> None:
        pipes = new_pipes()
        for _ in range(2):
            await pipes.kill()
            assert pipes.pid is None
        assert pipes.launch(is_of_a_judge=False) == pipes.pid
        for _ in range(2):
            await pipes.kill()
            assert pipes.pid is None

    trio.run(main)

"""The talk with a worker, step by step, without any process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import pytest

from shoal_tasks.errors import WorkerUnavailable
from shoal_tasks.families import EASY
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import LOCAL, ROWS_GENERATOR, FamilySpec
from shoal_tasks.worker.away import conversations
from shoal_tasks.worker.conversation import (
    Conversation,
    Kill,
    Launch,
    Outcome,
    Pause,
    Receive,
    Send,
    Step,
    Steps,
)
from shoal_tasks.worker.frames import Message, WorkerFrameDecoder, encode_frame
from shoal_tasks.worker.plan import CallFailure, WorkerCall

R = TypeVar("R")

LIMITS = WorkerLimits(
    start_timeout_seconds=60.0,
    request_timeout_seconds=15.0,
    recycle_cpu_seconds=100,
    max_restarts=6,
    max_backoff_seconds=1.0,
)
READY = encode_frame({"ok": True, "layers": []})
REPLY = encode_frame({"ok": True, "cpu_seconds": 100})
SPENT = encode_frame({"ok": True, "cpu_seconds": 101})
CALL: WorkerCall[str] = WorkerCall(message={"op": "ask"}, parse=lambda _reply: ["result"])
LATE = TimeoutError()
GONE = b""


class Script:
    """Does steps by heart: `reads` come one a `Receive`, an error instead of bytes likewise."""

    def __init__(self, *reads: bytes | OSError) -> None:
        self.reads = list(reads)
        self.steps: list[Step] = []

    def run(self, steps: Steps[R]) -> R:
        try:
            step = next(steps)
            while True:
                self.steps.append(step)
                step = steps.send(self._outcome(step))
        except StopIteration as done:
            result: R = done.value
            return result

    def _outcome(self, step: Step) -> Outcome:
        match step:
            case Launch():
                return 7
            case Receive():
                return self.reads.pop(0)
            case _:
                return None

    def kinds(self) -> list[type[Step]]:
        return [type(step) for step in self.steps]

    def sent(self) -> list[tuple[object, float]]:
        """Operation and deadline of each message sent."""
        found: list[tuple[object, float]] = []
        for step in self.steps:
            if isinstance(step, Send):
                decoder = WorkerFrameDecoder()
                decoder.feed(step.data)
                message: Message = decoder.next_message() or {}
                found.append((message["op"], step.seconds))
        return found


def conversation() -> Conversation:
    return Conversation(EASY, LIMITS)


def test_a_worker_is_launched_set_up_and_asked_within_their_deadlines() -> None:
    talk, script = conversation(), Script(READY, REPLY, REPLY)
    assert script.run(talk.request(CALL)) == ["result"]
    assert script.run(talk.request(CALL)) == ["result"]
    assert script.kinds() == [Launch, Send, Receive, Send, Receive, Send, Receive]
    assert script.sent() == [("setup", 60.0), ("ask", 15.0), ("ask", 15.0)]
    assert talk.report is not None and talk.report.pid == 7
    assert talk.num_restarts == 0


def test_a_reply_may_come_in_any_pieces() -> None:
    pieces = [bytes([byte]) for byte in READY + REPLY]
    assert Script(*pieces).run(conversation().request(CALL)) == ["result"]


def test_pauses_between_starts_double_up_to_a_limit_and_then_it_is_given_up() -> None:
    script = Script(LATE, GONE, BrokenPipeError(), b"\xff" * 8, GONE, GONE)
    with pytest.raises(WorkerUnavailable, match="does not start"):
        script.run(conversation().start())
    pauses = [step.seconds for step in script.steps if isinstance(step, Pause)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert script.kinds().count(Launch) == script.kinds().count(Kill) == 6


@pytest.mark.parametrize(
    ("reads", "failure"),
    [
        ([LATE], CallFailure.TIMED_OUT),
        ([REPLY[:-1], LATE], CallFailure.TIMED_OUT),
        ([GONE], CallFailure.CRASHED),
        ([REPLY[:-1], GONE], CallFailure.CRASHED),
        ([BrokenPipeError()], CallFailure.CRASHED),
        ([b"\xff" * 8], CallFailure.CRASHED),
        ([encode_frame({"ok": False})], CallFailure.CRASHED),
    ],
)
def test_a_request_that_fails_kills_and_the_next_starts_another(
    reads: Sequence[bytes | OSError], failure: CallFailure
) -> None:
    talk, script = conversation(), Script(READY, *reads, READY, REPLY)
    assert script.run(talk.request(CALL)) is failure
    assert script.kinds()[-1] is Kill
    # What was left of the first one's reply is not taken for the second's.
    assert script.run(talk.request(CALL)) == ["result"]
    assert talk.num_restarts == 1


def test_a_worker_whose_processor_time_is_used_up_is_replaced_before_the_next_request() -> None:
    talk, script = conversation(), Script(READY, REPLY, SPENT, READY, REPLY)
    for _ in range(2):
        assert script.run(talk.request(CALL)) == ["result"]
    assert Kill not in script.kinds()
    script.steps.clear()
    assert script.run(talk.request(CALL)) == ["result"]
    assert script.kinds()[:2] == [Kill, Launch]
    assert talk.num_restarts == 1


def test_the_next_start_after_a_stop_is_anothers() -> None:
    talk, script = conversation(), Script(READY, READY)
    script.run(talk.start())
    script.run(talk.start())
    script.run(talk.stop())
    script.run(talk.start())
    assert script.kinds() == [Launch, Send, Receive, Kill, Launch, Send, Receive]
    assert talk.num_restarts == 1


def test_a_judge_has_a_worker_of_its_own_with_limits_of_its_own() -> None:
    judged = FamilySpec(
        name="prose",
        generator=ROWS_GENERATOR,
        verifier=LOCAL,
        config={
            "sha256": "0" * 64,
            "rows": 2,
            "held_out": 0,
            "reward_name": "reward",
            "reward_range": [0, 1],
        },
        reward_path="/judge.py",
    )
    talks = conversations([judged, *EASY], LIMITS, clock=lambda: 0.0)
    assert list(talks) == ["", "/judge.py"], "the others' worker is the first"
    for talk, families, limits in (
        (talks[""], EASY, LIMITS),
        (talks["/judge.py"], [judged], LIMITS.of_a_judge()),
    ):
        script = Script(READY)
        script.run(talk.start())
        launch, sent = script.steps[0], script.steps[1]
        assert launch == Launch(is_of_a_judge=limits != LIMITS)
        assert isinstance(sent, Send)
        decoder = WorkerFrameDecoder()
        decoder.feed(sent.data)
        message: Any = decoder.next_message()
        assert message["limits"] == asdict(limits)
        assert [FamilySpec(**fields) for fields in message["families"]] == list(families)

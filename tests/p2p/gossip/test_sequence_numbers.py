"""Numbers of pubsub messages, whatever the clocks do and however a node ends."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_lab.simulation.parts import at_once
from shoal_p2p.disk import KeptState
from shoal_p2p.gossip.sequence_numbers import SequenceNumbers
from shoal_p2p.state_file import read_state, write_state

S = 1_000_000_000
NOW = 1_700_000_000 * S


class Machine:
    """Two clocks and a disk; each `start` is a process, which ends without a word."""

    def __init__(self) -> None:
        self.wall, self.monotonic, self.text = NOW, 5 * S, ""
        self.num_writes = 0

    def start(self) -> SequenceNumbers:
        return SequenceNumbers(
            self,  # type: ignore[arg-type]
            wall_ns=lambda: self.wall,
            monotonic_ns=lambda: self.monotonic,
        )

    async def load(self, take: object) -> int | None:
        return take(self.text) if self.text else None  # type: ignore[operator]

    async def save(self, text: str) -> None:
        self.text = text
        self.num_writes += 1

    def pass_by(self, seconds: float) -> None:
        self.wall += int(seconds * S)
        self.monotonic += int(seconds * S)


async def next_number(numbers: SequenceNumbers) -> int:
    await numbers.reserve()
    return numbers.next()


EVENTS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 20)),
    st.tuples(st.just("time"), st.floats(0, 3600)),
    st.tuples(st.just("clock"), st.floats(-1e7, 1e7)),
    st.tuples(st.just("kill"), st.just(0)),
    # The monotonic clock restarts.
    st.tuples(st.just("reboot"), st.just(0)),
)


@given(st.lists(EVENTS, max_size=30))
async def test_numbers_rise_over_restarts_and_steps_of_the_clock(
    events: list[tuple[str, float]],
) -> None:
    machine = Machine()
    numbers, last = machine.start(), 0
    for event, value in events:
        match event:
            case "publish":
                for _ in range(int(value)):
                    number = await next_number(numbers)
                    assert number > last
                    last = number
            case "time":
                machine.pass_by(value)
            case "clock":
                machine.wall += int(value * S)
            case "kill":
                numbers = machine.start()
            case _:
                machine.monotonic = 0
                numbers = machine.start()


async def test_numbers_follow_the_clock_and_time_passes_in_them_where_it_is_behind() -> None:
    """`DeliveryLag` reads them as a clock: one that stood still would look ever later."""
    machine = Machine()
    numbers = machine.start()
    assert await next_number(numbers) == NOW
    machine.wall -= 600 * S
    for process in (numbers, numbers := machine.start()):
        first = await next_number(process)
        machine.pass_by(10)
        assert await next_number(process) - first == 10 * S
    machine.wall += 3600 * S
    assert await next_number(numbers) == machine.wall


async def test_the_file_is_written_twice_a_minute_and_not_while_nothing_is_published() -> None:
    machine = Machine()
    numbers = machine.start()
    for _ in range(600):
        await next_number(numbers)
        machine.pass_by(1)
    assert 10 <= machine.num_writes <= 21
    machine.pass_by(3600)
    writes = machine.num_writes
    await next_number(numbers)
    assert machine.num_writes == writes + 1


@pytest.mark.parametrize("content", [b"", b"x", b"-1", b"\xff", b"9" * 30, b"9" * 5000])
async def test_a_corrupt_file_is_named_and_the_clock_counts(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = tmp_path / "peer.db"
    write_state(path, "number", content)
    machine = Machine()
    numbers = SequenceNumbers(
        KeptState(path, "number", in_thread=at_once),
        wall_ns=lambda: machine.wall,
        monotonic_ns=lambda: machine.monotonic,
    )
    assert await next_number(numbers) == NOW
    assert "is corrupt" in caplog.text
    assert int(read_state(path, "number") or 0) > NOW

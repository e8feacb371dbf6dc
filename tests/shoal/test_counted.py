"""Progress of long work, and the estimate of its remaining time."""

from __future__ import annotations

import io

from rich.console import Console

from shoal.counted import SAY_EVERY_SECONDS, Counted
from tests.support.doubles.clock import SetClock


def counted(clock: SetClock, total: int, *, terminal: bool = False) -> tuple[Counted, io.StringIO]:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=100)
    return Counted("batches", total, console=console, clock=clock), output


def test_a_log_gets_a_line_every_so_often() -> None:
    clock = SetClock()
    made, output = counted(clock, 9040)
    with made:
        for second in range(25):
            clock.now = float(second)
            made.update(64 * second)
    assert output.getvalue().splitlines() == [
        f"{64 * 10} of 9,040 batches, about {(9040 - 640) / 64 / 60:.0f} min left",
        "1,280 of 9,040 batches, about 2 min left",
    ]


def test_a_slow_start_does_not_count_as_the_pace() -> None:
    """Programs that start and models that load count once."""
    clock = SetClock()
    made, output = counted(clock, 1500)
    for clock.now, done in ((15.0, 1), (25.0, 101), (115.0, 1001)):
        made.update(done)
    assert output.getvalue().splitlines() == [
        "1 of 1,500 batches",
        "101 of 1,500 batches, about 2 min left",
        "1,001 of 1,500 batches, about 50 s left",
    ]


def test_before_the_first_line_nothing_is_promised() -> None:
    clock = SetClock()
    made, output = counted(clock, 10)
    clock.now = SAY_EVERY_SECONDS
    made.update(1)
    assert output.getvalue() == "1 of 10 batches\n"


def test_a_terminal_has_a_bar_that_goes_when_the_work_is_done() -> None:
    made, output = counted(SetClock(), 4, terminal=True)
    with made:
        made.update(2, "[b]half[/b]")
    assert "[b]half[/b]" in output.getvalue()
    assert "50 %" in output.getvalue()

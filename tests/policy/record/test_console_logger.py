"""What a person, a log file and a program read of rounds."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from shoal_ipc.answers.node import Progress
from shoal_policy.record.console_logger import (
    PHASE_INTERVAL_S,
    ROUND_INTERVAL_S,
    ConsoleLogger,
    num_peers,
)
from shoal_policy.record.phases import Phase, PhaseProgress
from shoal_policy.record.progress import RunCounters
from shoal_settings.schema import Settings
from tests.policy.record.test_metrics import HELD_OUT
from tests.policy.record.test_progress import record
from tests.support.doubles.clock import SetClock

SMALL = {"num_items": 192, "items": {"gcd_easy": 96, "count_bits_easy": 96}}


def reported(
    clock: SetClock, *, terminal: bool, width: int = 200, peers: int | None = None
) -> tuple[ConsoleLogger, io.StringIO]:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=width, no_color=True)
    made = ConsoleLogger(
        Settings(rounds=9, external=4), console=console, clock=clock, peers=lambda: peers
    )
    return made, output


def play(log: ConsoleLogger, *numbers: int) -> RunCounters:
    progress = RunCounters()
    nothing = {"gcd_easy": 0.25, "count_bits_easy": 0.0}
    progress.add_held_out({**HELD_OUT, **SMALL, "round": 0, "families": nothing})
    progress.add_held_out({**HELD_OUT, **SMALL})
    for number in numbers:
        one = record(
            number,
            0.25,
            groups_external=1,
            groups_local=3,
            reward_external=0.75,
            tokens_generated=300,
            num_tokens=100,
            seconds=2.0,
        )
        progress.add(one)
        log(one, progress)
    return progress


def test_a_log_file_gets_whole_lines_every_few_seconds() -> None:
    clock = SetClock()
    made, output = reported(clock, terminal=False)
    play(made, 1, 2)
    clock.now = ROUND_INTERVAL_S
    play(made, 3, 4, 9)
    lines = output.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["round 1/9", "round 3/9", "round 9/9"]
    assert "held-out 0.500 ± 0.070 of 192 (start 0.125)  own reward 0.250 (start 0.250)" in lines[0]
    assert "external 1/4 (25%) reward 0.75" in lines[0]
    assert "200 tok/s" in lines[0]
    assert "peer" not in lines[0]
    assert "\x1b" not in output.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_line_fits_its_terminal_and_says_the_same_things_first(width: int) -> None:
    made, output = reported(SetClock(), terminal=True, width=width, peers=12)
    play(made, 1)
    line = re.sub(r"\x1b\[[\d;]*[mK]|\r", "", output.getvalue()).rstrip("\n")
    assert len(line) < width
    assert line.startswith("round 1/9  held-out 0.500")
    assert "(start 0.125)" in line
    if width >= 80:
        assert "own reward 0.250" in line
        assert "external 1/4" in line
    if width >= 100:
        assert line.endswith("12 peers")
    assert ("± 0.070 of 192" in line) == (width >= 100)


def test_without_a_node_the_number_of_peers_is_unknown() -> None:
    assert num_peers(None) is None


def doing(seconds: float, *, done: int = 12) -> PhaseProgress:
    left = seconds * (32 - done) / done
    progress = Progress(round=1, done=done, total=32, elapsed_s=seconds, remaining_s=left)
    return PhaseProgress(phase=Phase.GENERATING, progress=progress)


def test_a_long_phase_is_printed_at_intervals() -> None:
    clock = SetClock()
    made, output = reported(clock, terminal=False)
    for clock.now in range(61):
        made.on_phase(doing(clock.now))
    lines = output.getvalue().splitlines()
    assert lines[0] == "round 1: generating, 12 of 32, for 10.0 s, ~16.7 s left"
    assert len(lines) == 60 // PHASE_INTERVAL_S


def test_short_phases_are_not_printed_nor_any_in_json_mode() -> None:
    made, output = reported(SetClock(), terminal=False)
    made.on_phase(doing(PHASE_INTERVAL_S - 0.1))
    ConsoleLogger(Settings(json_output=True), console=Console(file=output)).on_phase(doing(99.0))
    assert output.getvalue() == ""

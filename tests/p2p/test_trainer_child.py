"""The supervised trainer, with small real processes in its place."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import trio

from shoal_p2p.trainer_child import NODE_RUN, ChildPolicy, ChildState, TrainerChild
from tests.support.nodes import until

QUICK = ChildPolicy(
    first_backoff_seconds=0.01,
    max_backoff_seconds=0.02,
    healthy_seconds=60.0,
    max_failures=3,
    broken_seconds=0.05,
    stop_seconds=20.0,
)
SLEEPER = "import sys; sys.stdin.read()"
# Says that its handler is set by writing to the file it was given.
STUBBORN = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).write_text("ready")
time.sleep(600)
"""
POLITE = """
import pathlib, signal, sys, time
def stop(*_):
    pathlib.Path(sys.argv[1]).write_text("checkpoint")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
pathlib.Path(sys.argv[1]).write_text("ready")
time.sleep(600)
"""


class Watched(TrainerChild):
    """A child with all the states that it went through."""

    def __init__(
        self, code: str, *arguments: str, policy: ChildPolicy = QUICK, isolated: bool = True
    ) -> None:
        self.states: list[ChildState] = []
        flags = ("-I", "-S") if isolated else ()
        super().__init__(
            arguments,
            policy=policy,
            rng=random.Random(0),
            on_state=self.states.append,
            command=(sys.executable, *flags, "-c", code),
        )


@asynccontextmanager
async def running(child: TrainerChild) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        await nursery.start(child.run)
        yield
        nursery.cancel_scope.cancel()


async def test_its_end_after_the_last_round_is_final() -> None:
    child = Watched("raise SystemExit(0)")
    with trio.fail_after(30):
        await child.run()
    assert child.states == [ChildState.STARTING, ChildState.RUNNING, ChildState.FINISHED]
    assert (child.restarts, child.last_exit, child.pid) == (0, 0, None)


async def test_wrong_settings_are_not_tried_again() -> None:
    child = Watched("raise SystemExit(2)")
    with trio.fail_after(30):
        await child.run()
    assert child.state is ChildState.MISCONFIGURED
    assert child.restarts == 0


async def test_numbers_that_diverged_are_tried_again_after_the_long_pause() -> None:
    child = Watched("raise SystemExit(3)")
    async with running(child):
        await until(lambda: child.states.count(ChildState.DIVERGED) == 2)
    once = [ChildState.STARTING, ChildState.RUNNING, ChildState.DIVERGED]
    assert child.states[:6] == once * 2
    never = Watched("raise SystemExit(3)", policy=ChildPolicy())
    async with running(never):
        await until(lambda: never.state is ChildState.DIVERGED)
        assert never.restarts == 0


async def test_a_crash_is_followed_by_a_pause_and_a_new_start(tmp_path: Path) -> None:
    counter = tmp_path / "starts"
    code = f"""
import os, signal
with open({str(counter)!r}, "a") as file: file.write("x")
starts = os.path.getsize({str(counter)!r})
if starts == 1: os.kill(os.getpid(), signal.SIGKILL)
raise SystemExit(1 if starts == 2 else 0)
"""
    child = Watched(code)
    with trio.fail_after(30):
        await child.run()
    once = [ChildState.STARTING, ChildState.RUNNING]
    assert child.states == [
        *(*once, ChildState.WAITING) * 2,
        *once,
        ChildState.FINISHED,
    ]
    assert child.restarts == 2


async def test_failures_in_a_row_open_the_breaker_and_one_more_is_tried() -> None:
    child = Watched("raise SystemExit(1)")
    async with running(child):
        await until(lambda: child.states.count(ChildState.BROKEN) == 2)
    once = [ChildState.STARTING, ChildState.RUNNING]
    assert child.states[:12] == [
        *(*once, ChildState.WAITING) * 2,
        *(*once, ChildState.BROKEN) * 2,
    ]


async def test_a_child_that_lived_long_does_not_count_as_a_failure_in_a_row() -> None:
    policy = ChildPolicy(
        first_backoff_seconds=0.01, max_backoff_seconds=0.02, healthy_seconds=0.0, max_failures=2
    )
    child = Watched("raise SystemExit(1)", policy=policy)
    async with running(child):
        await until(lambda: child.restarts >= 4)
    assert ChildState.BROKEN not in child.states


def test_pauses_double_up_to_a_bound_with_jitter() -> None:
    policy = ChildPolicy(first_backoff_seconds=1.0, max_backoff_seconds=5.0, max_failures=9)
    child = Watched("", policy=policy)
    pauses = [child._pause(failures) for failures in range(1, 9)]
    for pause, full in zip(pauses, [1, 2, 4, 5, 5, 5, 5, 5], strict=True):
        assert full / 2 <= pause <= full
    assert len(set(pauses)) == len(pauses)
    assert child._pause(9) == policy.broken_seconds


async def test_a_stop_leaves_time_for_a_last_checkpoint(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    child = Watched(POLITE, str(marker))
    async with running(child):
        # Not only there: a file that is open is still empty, and its writer would write once more.
        await until(lambda: marker.exists() and marker.read_text() == "ready")
    assert marker.read_text() == "checkpoint"
    assert child.state is ChildState.STOPPED
    assert child.last_exit == 0


async def test_a_restart_comes_after_a_last_checkpoint_and_without_a_pause(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    policy = replace(QUICK, first_backoff_seconds=600.0, max_backoff_seconds=600.0)
    child = Watched(POLITE, str(marker), policy=policy)
    async with running(child):
        await until(lambda: marker.exists() and marker.read_text() == "ready")
        pid = child.pid
        child.restart()
        await until(lambda: child.pid not in (None, pid))
        await until(lambda: marker.read_text() == "ready")
        assert (child.last_exit, child.restarts) == (0, 0)
    assert marker.read_text() == "checkpoint"
    assert child.states.count(ChildState.RUNNING) == 2
    assert ChildState.WAITING not in child.states


async def test_one_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    policy = ChildPolicy(stop_seconds=0.1)
    child = Watched(STUBBORN, str(marker), policy=policy)
    async with running(child):
        await until(marker.exists)
        pid = child.pid
        assert pid is not None
    assert child.last_exit == -signal.SIGKILL
    assert child.state is ChildState.STOPPED
    assert not psutil.pid_exists(pid)


async def test_ctrl_c_in_the_terminal_does_not_reach_it() -> None:
    child = Watched(SLEEPER)
    async with running(child):
        await until(lambda: child.pid is not None)
        assert child.pid is not None
        assert os.getsid(child.pid) != os.getsid(0)


def test_it_ends_with_its_node_however_that_dies() -> None:
    program = textwrap.dedent(f"""
        import sys, trio
        from shoal_p2p.trainer_child import ChildState, TrainerChild
        child = TrainerChild(
            [],
            command=(sys.executable, "-I", "-S", "-c", {SLEEPER!r}),
            on_state=lambda state: state is ChildState.RUNNING and print(child.pid, flush=True),
        )
        trio.run(child.run)
    """)
    node = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        trainer = psutil.Process(int(node.stdout.readline()))
        assert trainer.is_running()
    finally:
        node.kill()
        node.communicate(timeout=20)
    gone, alive = psutil.wait_procs([trainer], timeout=20)
    assert gone == [trainer]
    assert alive == []


def test_the_real_command_is_the_supervised_trainer() -> None:
    child = TrainerChild(["--rounds=3"])
    by_this_node = ["--supervised", "--node-run", NODE_RUN]
    command = [sys.executable, "-P", "-m", "shoal_policy", *by_this_node, "--rounds=3"]
    assert child._command == command


FAILS = "import sys; print('ValueError: odd', file=sys.stderr); raise SystemExit(1)"


async def test_its_last_words_are_passed_on_logged_and_kept(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    slow = ChildPolicy(first_backoff_seconds=600, max_backoff_seconds=600)
    child = Watched(FAILS, policy=slow)
    async with running(child):
        await until(lambda: child.state is ChildState.WAITING)
        assert (child.last_exit, child.last_error) == (1, "ValueError: odd")
        await until(lambda: child.next_start_s is not None)
        assert child.next_start_s is not None
        assert 299 < child.next_start_s <= 600
        await until(lambda: bool(caplog.records))
    assert capfd.readouterr().err == "ValueError: odd\n"
    assert "the trainer ended (exit code 1): ValueError: odd; next start" in caplog.text


async def test_a_refusal_is_printed_once_and_by_the_trainer_alone(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    child = Watched("import sys; sys.stderr.write('shoal trainer: no\\n'); raise SystemExit(2)")
    with trio.fail_after(30):
        await child.run()
    assert child.last_error == "no"
    assert capfd.readouterr().err == "shoal trainer: no\n"
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]


async def test_one_that_talks_much_and_leaves_a_child_behind_ends_all_the_same() -> None:
    """A grandchild that holds the other end open does not hold up the end."""
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(20)'])\n"
        "sys.stderr.write('x' * 3_000_000 + '\\nValueError: late\\n')\n"
        "raise SystemExit(2)"
    )
    child = Watched(code, isolated=False)
    with trio.fail_after(15):
        await child.run()
    assert child.last_error == "ValueError: late"

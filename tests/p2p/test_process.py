"""What the commands share: which folder they own, and how they notice that they should end."""

from __future__ import annotations

import argparse
import os
import signal
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
import trio.testing

from p2p.data_dir import DataDirInUseError, lock_data_dir
from p2p.process import call_on_parent_end, call_on_signal, own_data_dir
from shoal.__main__ import main
from shoal_settings.loader import Loaded, add_flags, load


def loaded(*flags: str, environment: Mapping[str, str] | None = None) -> Loaded:
    parser = argparse.ArgumentParser()
    add_flags(parser, "node")
    return load("node", parser.parse_args(flags), environment or {})


@pytest.fixture(autouse=True)
def a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_second_node_in_the_default_folder_takes_the_next() -> None:
    with own_data_dir(loaded()) as first, own_data_dir(loaded()) as second:
        assert first.data_dir == Path(".shoal/node")
        assert second.data_dir == Path(".shoal/node-2")
        with own_data_dir(loaded()) as third:
            assert third.data_dir == Path(".shoal/node-3")
    # A folder that has become free is taken again: it is the same node, with the same identity.
    with own_data_dir(loaded()) as again:
        assert again.data_dir == Path(".shoal/node")


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_a_folder_that_was_named_is_that_folder_or_none(by: str) -> None:
    given = (
        loaded("--data-dir", "named")
        if by == "flag"
        else loaded(environment={"SHOAL_DATA_DIR": "named"})
    )
    with (
        lock_data_dir(Path("named")),
        pytest.raises(DataDirInUseError, match="in use"),
        own_data_dir(given),
    ):
        pass


def test_the_folder_is_its_owners_alone() -> None:
    with own_data_dir(loaded("--data-dir", "a/b")) as settings:
        assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700


async def test_a_signal_calls_back_once() -> None:
    called = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(call_on_signal, called.set)
        os.kill(os.getpid(), signal.SIGTERM)
        with trio.fail_after(20):
            await called.wait()
        nursery.cancel_scope.cancel()


async def test_the_end_of_standard_input_is_the_parents_end() -> None:
    reading, writing = os.pipe()
    before = os.dup(0)
    os.dup2(reading, 0)
    try:
        called = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call_on_parent_end, called.set)
            os.write(writing, b"still here")
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert not called.is_set()
            os.close(writing)
            with trio.fail_after(20):
                await called.wait()
    finally:
        os.dup2(before, 0)
        for descriptor in (before, reading):
            os.close(descriptor)


@pytest.mark.parametrize(
    "argv",
    [
        ["debug"],
        ["debug", "dreams"],
        ["debug", "rollouts", "--limit", "0"],
        ["debug", "rollouts", "--limit", "few"],
        ["debug", "status", "--follow"],
    ],
    ids=" ".join,
)
def test_debug_refuses_what_it_does_not_know(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 2
    assert "Traceback" not in capsys.readouterr().err

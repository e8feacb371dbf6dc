"""What serving commands share: the folder they own, how they start again, and how they end."""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from shoal_base.collector import NEW_CONTAINERS
from shoal_p2p.data_dir import DataDirInUseError, lock_data_dir
from shoal_p2p.flags import ServingFlags
from shoal_p2p.live_command import _folders, _kept
from shoal_p2p.net.host import ListenError
from shoal_p2p.net.identity import Identity
from shoal_p2p.node import NodeEnd
from shoal_p2p.process import (
    Serving,
    own_data_dir,
    run_until_stopped,
    serve,
)
from shoal_p2p.shutdown import call_on_parent_end, call_on_signal
from shoal_settings.loader import Loaded, add_flags, load
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError
from tests.support import factories as make


def loaded(*flags: str, environment: Mapping[str, str] | None = None) -> Loaded:
    parser = argparse.ArgumentParser()
    add_flags(parser, "node")
    return load("node", parser.parse_args(flags), environment or {})


@pytest.fixture(autouse=True)
def a_collector_as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)  # what was frozen stays so, or each test would walk it again


pytestmark = pytest.mark.usefixtures("empty_folder")


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
    before = os.umask(0o022)
    try:
        with own_data_dir(loaded("--data-dir", "a/b")) as settings:
            (settings.data_dir / "written").write_text("")
            assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700
            assert stat.S_IMODE((settings.data_dir / "written").stat().st_mode) == 0o600
    finally:
        os.umask(before)


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


@dataclass
class Peer:
    """A peer without a network that ends as the test decides."""

    identity: Identity
    settings: Settings
    on_ready: Callable[[Any], None]
    end: bool | Exception = False
    member: Any = field(init=False)
    stopped: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        addresses = (f"/ip4/127.0.0.1/tcp/1/p2p/{self.identity.peer_id}",)
        self.member = SimpleNamespace(
            peer_id=self.identity.peer_id,
            host=SimpleNamespace(listen_addrs=lambda: addresses),
            manifest=make.swarm(),
        )

    def stop(self) -> None:
        self.stopped.set()

    async def run(self) -> bool:
        async with trio.open_nursery():  # as a real one, whose errors come in a group
            self.on_ready(self)
            if isinstance(self.end, Exception):
                raise self.end
        return self.end


@dataclass
class Peers:
    """Makes one peer after another, each with the next of some ends."""

    ends: list[bool | Exception]
    made: list[Peer] = field(default_factory=list)

    def serve(self, *flags: str, run: Any = run_until_stopped) -> int:
        called = ServingFlags(name="relay", description="", settings_of="bootstrap")
        serving = Serving(
            make=self._make,
            run=run,
            announce=announce,
            facts=lambda peer: {"made": len(self.made)},
            failures=(TaskError,),
        )
        return serve(serving, called.parse(["--data-dir", "d", *flags]))

    def _make(self, **given: Any) -> Peer:
        self.made.append(Peer(**given, end=self.ends[len(self.made)]))
        return self.made[-1]


def announce(peer: Peer, settings: Settings) -> Iterator[str]:
    yield f"here in {settings.data_dir}:"
    yield from peer.member.host.listen_addrs()


def test_a_peer_that_asks_for_it_is_started_again_as_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    peers = Peers([True, True, False])
    assert peers.serve() == 0
    assert len(peers.made) == 3
    (peer_id,) = {peer.identity.peer_id for peer in peers.made}
    expected = ["here in d:", f"/ip4/127.0.0.1/tcp/1/p2p/{peer_id}"]
    assert capsys.readouterr().out.splitlines() == expected * 3


def test_a_serving_process_spares_its_collector() -> None:
    kept: list[list[int]] = [[] for _ in range(1000)]
    before = gc.get_freeze_count()
    assert Peers([False]).serve() == 0
    assert gc.get_threshold()[0] == NEW_CONTAINERS
    assert gc.get_freeze_count() >= before + len(kept)


def test_programs_receive_the_ready_peer_and_its_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    peers = Peers([False])
    assert peers.serve("--json") == 0
    member = peers.made[0].member
    assert json.loads(capsys.readouterr().out) == {
        "schema_version": 1,
        "event": "ready",
        "peer_id": member.peer_id,
        "addresses": list(member.host.listen_addrs()),
        "swarm": {"name": member.manifest.swarm_name, "digest": member.manifest.digest.hex()},
        "data_dir": "d",
        "made": 1,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [(ListenError("no such port"), 2), (TaskError("no worker"), 1)],
    ids=["the user can repair it", "no one can"],
)
def test_an_error_that_people_know_ends_it_with_one_line(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Peers([error]).serve() == code
    assert capsys.readouterr().err == f"shoal relay: {error}\n"


def test_any_other_error_is_shown_whole() -> None:
    with pytest.raises(ZeroDivisionError):
        Peers([ZeroDivisionError()]).serve()


def test_what_a_run_returns_is_the_exit_code_and_a_signal_stops_it() -> None:
    async def run(peer: Peer, _settings: Settings) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        with trio.fail_after(20):
            await peer.stopped.wait()
        return 2

    assert Peers([False]).serve(run=run) == 2


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("shoal", "COMMAND"),
        ("shoal_p2p", "node"),
        ("shoal_p2p.judge", "judge"),
        ("shoal_bootstrap", "bootstrap"),
        ("shoal_policy", "trainer"),
    ],
)
def test_a_package_runs_its_process(module: str, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.startswith(f"usage: shoal {command} ")


def test_each_model_has_a_folder_by_default() -> None:
    toy, other = loaded("--model=tiny"), loaded("--model=tiny-sparse")
    with own_data_dir(toy, _folders) as first, own_data_dir(other, _folders) as second:
        assert first.data_dir == Path(".shoal/node")
        assert second.data_dir == Path(".shoal/node-tiny-sparse")
        with own_data_dir(other, _folders) as third:
            assert third.data_dir == Path(".shoal/node-tiny-sparse-2")
    with own_data_dir(loaded("--model=tiny-sparse", "--role=observe"), _folders) as fourth:
        assert fourth.data_dir == Path(".shoal/node")
    with own_data_dir(loaded("--model=tiny-sparse", "--data-dir=mine"), _folders) as named:
        assert named.data_dir == Path("mine")


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (NodeEnd.FINISHED, "40 of 40 rounds are done; ROUNDS=80 (--rounds) continues"),
        (
            NodeEnd.STOPPED,
            "stopped at round 40: checkpoint round-000040 in d; run the same command to resume",
        ),
    ],
)
def test_a_node_says_at_its_end_what_is_kept_and_how_to_go_on(end: NodeEnd, expected: str) -> None:
    (Path("d") / "checkpoints" / "round-000040").mkdir(parents=True)
    node: Any = SimpleNamespace(last_status={"round": 40})
    assert list(_kept(node, loaded("--rounds=40", "--data-dir=d").settings, end)) == [expected]
    assert list(_kept(node, loaded().settings, NodeEnd.MISCONFIGURED)) == []

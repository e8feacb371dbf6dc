"""Stopped, starved and misconfigured processes: other nodes continue, and it recovers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from shoal_ipc.client import SOCKET_NAME
from tests.support.processes import ProcessManager, ShoalProcess, open_stage, wait_for

pytestmark = pytest.mark.timeout(300)

HOUR_AHEAD = """\
import time

_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {seconds}
time.time_ns = lambda: _time_ns() + {seconds} * 10**9
"""


def _round(node: ShoalProcess) -> int:
    status = node.view()
    assert status is not None
    return int(status["round"])


@pytest.mark.slow
def test_a_stopped_trainer_costs_its_node_nothing(stage: ProcessManager) -> None:
    """A slow consumer: the buffer stays bounded, and training continues afterwards."""
    flags = ("--round-seconds", "0.1")
    small = ("--buffer-bytes", str(24 * 16 * 1024))  # 24 groups
    one = stage.node("one", *small, *flags)
    two = stage.node("two", *flags, bootstrap=one.address)
    before = one.wait_status(lambda s: s["groups_external_used"] >= 1, "training on others")
    trainer = before["trainer"]["pid"]
    os.kill(trainer, signal.SIGSTOP)
    try:
        stopped_at = _round(one)
        received = before["groups_received"]
        status = one.wait_status(
            lambda s: s["groups_received"] >= received + 60, "hearing others all the while"
        )
        assert status["peers"] >= 1
        assert status["buffer"]["groups"] <= 24
        assert status["round"] <= stopped_at + 1
    finally:
        os.kill(trainer, signal.SIGCONT)
    after = one.wait_status(lambda s: s["round"] > stopped_at + 2, "training again")
    assert after["trainer"]["pid"] == trainer, "it was slow, not dead"
    assert two.alive


@pytest.mark.slow
def test_file_descriptors_that_run_out_come_back(stage: ProcessManager) -> None:
    """Connections beyond the limit are refused; afterwards the node accepts new ones."""
    if shutil.which("prlimit") is None:
        pytest.skip("needs prlimit")
    limited = ("prlimit", "--nofile=64:64")
    starved = stage.new_node("starved", "--role=observe", prefix=limited).start()
    port = int(starved.address.split("/")[4])
    with ExitStack() as held:
        for _ in range(120):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5.0))
        # The pid is prlimit's, which the node's process has replaced.
        files = Path(f"/proc/{starved.pid}/fd")
        wait_for(lambda: len(list(files.iterdir())) >= 60, 30.0, "its descriptors used up")
        for _ in range(8):  # a few of its descriptors may still be free
            asker = held.enter_context(socket.socket(socket.AF_UNIX))
            asker.connect(str(starved.data_dir / SOCKET_NAME))
        refused = "the socket accepts no connection"
        wait_for(
            lambda: refused in starved.log or not starved.alive or None, 30.0, "a word about it"
        )
        assert starved.alive
    other = stage.node("other", "--role=observe", bootstrap=starved.address)
    other.wait_status(lambda s: s["peers"] >= 1, "a newcomer is let in")
    starved.wait_status(lambda s: s["peers"] >= 1, "it answers again")


@pytest.mark.slow
def test_a_clock_an_hour_ahead_hurts_only_itself(stage: ProcessManager, tmp_path: Path) -> None:
    """Its batches are ignored, not rejected: a wrong clock is no attack. Other nodes continue."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(HOUR_AHEAD.format(seconds=3600))
    honest = stage.node("honest", "--role=observe")
    fast = stage.new_node(
        "fast",
        "--round-seconds",
        "0.2",
        bootstrap=honest.address,
        environment={"PYTHONPATH": os.pathsep.join([str(site), *sys.path])},
    ).start()
    status = honest.wait_status(
        lambda s: s["verdicts"]["ignore"].get("near_future", 0) >= 3,
        "batches from the future ignored",
    )
    assert status["verdicts"]["reject"] == {}
    assert status["peers"] == 1, "it stays connected"
    assert status["groups_received"] == 0
    trained = _round(fast)
    fast.wait_status(lambda s: s["round"] > trained + 2, "it trains on alone")
    warning = "this machine's clock is 3,600 s ahead of its one peer"
    wait_for(lambda: warning in fast.log or None, 30.0, "a word about its clock")
    assert honest.alive


@pytest.mark.slow
def test_two_nodes_with_one_identity_are_reported(stage: ProcessManager) -> None:
    """Neither ends, third parties keep their reputation, and the log says what to do."""
    bootstrap = stage.bootstrap()
    flags = ("--round-seconds", "0.2")
    first = stage.node("first", *flags, bootstrap=bootstrap.address)
    witness = stage.node("witness", *flags, bootstrap=bootstrap.address)
    witness.wait_status(lambda s: s["groups_received"] >= 1, "the first heard")
    duplicate = stage.new_node("duplicate", *flags, bootstrap=witness.address)
    duplicate.data_dir.mkdir()
    shutil.copy(first.data_dir / "identity.key", duplicate.data_dir / "identity.key")
    duplicate.start()
    assert duplicate.peer_id == first.peer_id
    wait_for(
        lambda: "another node uses this identity" in first.log + duplicate.log or None,
        60.0,
        "a warning on either node",
    )
    for node in (first, duplicate, witness):
        at = _round(node)
        node.wait_status(lambda s, at=at: s["round"] > at + 2, "rounds go on")
    rows = (witness.view("peers") or {})["peers"]
    assert rows, "the witness still has peers"
    for node in (first, duplicate):
        for row in (node.view("peers") or {})["peers"]:
            assert row["score"] > -10, "a forwarder of the duplicate's batches is not blamed"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs the right to mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "shoal-test", str(disk)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.slow
def test_a_full_disk_stops_nothing_but_what_needs_it(small_disk: Path, tmp_path: Path) -> None:
    """Nothing is acknowledged that is not on disk; with free space, everything continues."""
    with open_stage(small_disk) as stage:
        flags = ("--round-seconds", "0.2")
        node = stage.node("node", *flags)
        node.wait_status(lambda s: s["groups_published"] >= 4, "publishing")
        filler = small_disk / "filler"
        _fill(filler)
        published = (node.view() or {})["groups_published"]
        wait_for(lambda: "no space left" in node.log.lower(), 60.0, "a word of it in the log")
        assert node.alive
        filler.unlink()
        node.wait_status(
            lambda s: s["groups_published"] >= published + 4, "publishing with space again"
        )
        assert node.stop() == 0


@pytest.mark.slow
def test_a_full_disk_pauses_and_loses_nothing(small_disk: Path) -> None:
    """Reported in log, status and doctor; no round is repeated; with free space all are played."""
    with open_stage(small_disk) as stage:
        node = stage.node("node", "--rounds", "150", "--round-seconds", "0.05")
        node.wait_status(lambda s: s["round"] >= 5, "training")
        filler = small_disk / "filler"
        _fill(filler)
        paused = node.wait_status(lambda s: s["trainer"]["state"] == "paused", "a pause")
        assert "no space left" in paused["trainer"]["paused"]
        findings = {one["check"]: one for one in (node.view("doctor") or {})["findings"]}
        assert findings["trainer"]["state"] == findings["disk"]["state"] == "bad"
        assert "free disk space" in findings["trainer"]["remedy"]
        assert (node.view() or {})["round"] == paused["round"], "no round while it is full"
        assert node.log.count("ERROR trainer: paused") == 1
        filler.unlink()
        after = node.wait_status(lambda s: s["round"] > paused["round"], "the next round")
        assert after["trainer"]["paused"] is None
        assert after["trainer"]["pid"] == paused["trainer"]["pid"], "it was never started again"
        assert node.wait(90) == 0
    lines = (node.data_dir / "metrics.jsonl").read_text().splitlines()
    rounds = [event["round"] for event in map(json.loads, lines) if event["event"] == "round"]
    assert rounds == list(range(1, 151))
    assert node.log.count("ERROR node: no space left in") <= 1
    assert "Traceback" not in node.log


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))

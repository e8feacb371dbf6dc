"""Links that break, stall, delay and drop, on real processes: missed batches arrive afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.netns import Lan, available, open_lan
from tests.support.processes import ProcessManager, ShoalProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PORT = 4001
FLAGS = ("--no-mdns", "--round-seconds", "0.5", "--keep-running", "--checkpoint-seconds", "1")


@pytest.fixture
def lan() -> Iterator[Lan]:
    if not available():
        pytest.skip("needs root and network namespaces")
    with open_lan() as made:
        yield made


def _host_node(
    stage: ProcessManager,
    name: str,
    host: tuple[str, tuple[str, ...]],
    *flags: str,
    bootstrap: str = "",
) -> ShoalProcess:
    address, prefix = host
    where = ("--bootstrap", bootstrap) if bootstrap else ()
    return stage.process(
        "node",
        name,
        "--listen",
        f"/ip4/{address}/tcp/{PORT}",
        *FLAGS,
        *where,
        *flags,
        prefix=prefix,
    )


def _published(nodes: list[ShoalProcess]) -> dict[str, int]:
    return {node.peer_id: int((node.view() or {})["groups_published"]) for node in nodes}


def _received_everything(node: ShoalProcess, nodes: list[ShoalProcess], seconds: float) -> None:
    wanted = sum(n for peer, n in _published(nodes).items() if peer != node.peer_id)
    node.wait_status(
        lambda s: s["groups_received"] == wanted, f"all {wanted} groups of the others", seconds
    )


def test_a_partition_heals_and_what_was_missed_arrives(stage: ProcessManager, lan: Lan) -> None:
    rounds = ("--rounds", "80")
    first = _host_node(stage, "a1", lan.host("a"), *rounds).start()
    others = [
        _host_node(stage, name, lan.host(side), *rounds, bootstrap=first.address).start()
        for name, side in (("a2", "a"), ("b1", "b"), ("b2", "b"))
    ]
    nodes = [first, *others]
    for node in nodes:
        node.wait_status(lambda s: s["peers"] == 3, "all connected")
    lan.cut()
    for node in nodes:
        node.wait_status(lambda s: s["peers"] == 1, "the other side's silence noticed")
    for node in nodes:
        at = int((node.view() or {})["round"])
        node.wait_status(lambda s, at=at: s["round"] > at + 4, "each side trains on")
    lan.heal()
    for node in nodes:
        node.wait_status(lambda s: s["peers"] == 3, "all connected again", 60.0)
    for node in nodes:
        node.wait_status(lambda s: s["round"] == 80, "all rounds played", 180.0)
    for node in nodes:
        _received_everything(node, nodes, 90.0)


def test_a_stopped_node_is_missed_and_catches_up(stage: ProcessManager) -> None:
    flags = ("--round-seconds", "0.5", "--rounds", "70", "--keep-running")
    one = stage.node("one", *flags)
    two = stage.node("two", *flags, bootstrap=one.address)
    one.wait_status(lambda s: s["groups_received"] > 0, "each heard")
    os.kill(two.pid, signal.SIGSTOP)
    try:
        one.wait_status(lambda s: s["peers"] == 0, "its silence noticed")
        at = int((one.view() or {})["round"])
        one.wait_status(lambda s: s["round"] > at + 4, "training alone")
    finally:
        os.kill(two.pid, signal.SIGCONT)
    for node in (one, two):
        node.wait_status(lambda s: s["peers"] == 1, "together again", 60.0)
        node.wait_status(lambda s: s["round"] == 70, "all rounds played", 180.0)
    for node in (one, two):
        _received_everything(node, [one, two], 90.0)


def test_a_link_that_lags_and_drops_loses_no_group(
    stage: ProcessManager, lan: Lan, tmp_path: Path
) -> None:
    """200 ms each way and a reset every seven seconds, through a proxy between hosts.

    The link is down for longer than gossip remembers: missed messages are fetched.
    """
    rounds = ("--rounds", "60")
    near = lan.host("a")
    first = _host_node(stage, "near", near, *rounds).start()
    middle, prefix = lan.host("a")
    proxy = subprocess.Popen(
        [
            *prefix,
            sys.executable,
            str(Path(__file__).parents[1] / "support" / "lossy_proxy.py"),
            f"{middle}:{PORT}",
            f"{near[0]}:{PORT}",
            "--delay-s=0.2",
            "--drop-every-s=7",
            "--away-s=6",
        ]
    )
    try:
        through = f"/ip4/{middle}/tcp/{PORT}/p2p/{first.peer_id}"
        far = lan.host("b")
        # The far host reaches only the proxy: its direct route to the near one is closed.
        subprocess.run([*far[1], "ip", "route", "add", "blackhole", near[0]], check=True)
        second = _host_node(stage, "far", far, *rounds, bootstrap=through).start()
        nodes = [first, second]
        for node in nodes:
            node.wait_status(lambda s: s["round"] == 60, "all rounds played", 180.0)
        for node in nodes:
            _received_everything(node, nodes, 120.0)
    finally:
        proxy.kill()
        proxy.wait()

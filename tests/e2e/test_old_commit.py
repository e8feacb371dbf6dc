"""Nodes of an earlier commit and of the present one, as real processes: one swarm, one socket.

`shoal` of the earlier commit is its `p2p.cli.entry`, run from its own tree.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import trio

from tests.support.data_folder import read_archive_file
from tests.support.nodes import protocols_of
from tests.support.old_commit import ADDED, SERVED, TAKEN_NO_LONGER, debug, run, steady
from tests.support.processes import (
    LOOPBACK,
    PRESENT,
    Program,
    ShoalProcess,
    Stage,
    open_stage,
    wait_for,
)

pytestmark = pytest.mark.timeout(300)

TRAINING = ("--round-seconds", "0.2", "--eval-every", "0", "--log", "none")
SWARM = ("--listen", LOOPBACK, "--no-mdns", "--checkpoint-seconds", "0.5")
SHARE_SECONDS = 60.0
STRANGER = "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"


class Both:
    """A stage for each program."""

    def __init__(self, old: Stage, new: Stage) -> None:
        self.old = old
        self.new = new


@pytest.fixture
def both(tmp_path: Path, old: Program) -> Iterator[Both]:
    with open_stage(tmp_path, old) as olds, open_stage(tmp_path) as news:
        yield Both(olds, news)


def test_the_old_program_is_all_of_the_old_tree(old: Program) -> None:
    """Else the tests here would compare the present shoal with itself."""
    names = "p2p, policy, bootstrap, shoal_wire, shoal_ipc, shoal_tasks, shoal_settings"
    done = subprocess.run(
        [sys.executable, "-c", f"import {names}; print(*(m.__file__ for m in ({names})))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=old.tree,
        env={**os.environ, **old.environment},
    )
    files = done.stdout.split()
    assert len(files) == 7
    assert all(file.startswith(f"{old.tree}/") for file in files)


CORE_VIEWS = ("id", "peers", "scores", "mesh", "topics")
NODE_VIEWS = ("status", *CORE_VIEWS, "buffer", "contributions", "fetch", "rollouts")
"""Views in which, while nobody trains, little but clocks changes."""
ORDERS = (
    (("block", STRANGER), "blocked", True),
    (("unblock", STRANGER), "blocked", False),
    (("protect", STRANGER), "protected", True),
    (("protect", STRANGER, "--off"), "protected", False),
)
"""About somebody who is not there, so that they change nothing for the swarm."""


@pytest.mark.slow
def test_both_learn_from_each_other_through_an_old_bootstrap(both: Both, old: Program) -> None:
    bootstrap = both.old.bootstrap()
    one, two = _nodes(both, bootstrap, *TRAINING)
    with _all_shared(one, two):
        for node in (one, two):
            _both_commands_show_the_same(old, node, ("status",))
    _end(one, two, bootstrap)


@pytest.mark.slow
def test_both_learn_from_each_other_through_a_present_bootstrap(both: Both, old: Program) -> None:
    bootstrap = both.new.bootstrap()
    one, two = _nodes(both, bootstrap, *TRAINING)
    with _all_shared(one, two):
        for node, other in ((one, two), (two, one)):
            _both_commands_show_the_same(old, node, NODE_VIEWS)
            _both_commands_give_orders(old, node)
            _both_commands_probe(old, node, other)
        _both_commands_show_the_same(old, bootstrap, CORE_VIEWS)
    _end(one, two, bootstrap)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["old", "new"])
def test_a_trainer_works_with_a_node_of_the_other_commit(both: Both, program: str) -> None:
    bootstrap = getattr(both, program).bootstrap()
    one, two = _nodes(both, bootstrap, "--no-trainer")
    trainers = [
        stage.process("trainer", node.data_dir.name, *TRAINING).launch()
        for stage, node in ((both.new, one), (both.old, two))
    ]
    with _all_shared(one, two):
        pass
    for trainer, node in zip(trainers, (one, two), strict=True):
        assert trainer.stop() == 0, trainer.log
        node.wait_status(lambda s: not s["trainer"]["connected"], "the trainer's end noticed")
    _end(one, two, bootstrap)


def _nodes(both: Both, bootstrap: ShoalProcess, *flags: str) -> tuple[ShoalProcess, ShoalProcess]:
    """An old node and a present one, joined."""
    where = ("--bootstrap", bootstrap.address)
    one = both.old.process("node", "old", *SWARM, *where, *flags).launch()
    two = both.new.process("node", "new", *SWARM, *where, *flags).launch()
    return one.wait_ready(), two.wait_ready()


@contextlib.contextmanager
def _all_shared(one: ShoalProcess, two: ShoalProcess) -> Iterator[None]:
    """Each has trained on groups of the other, and has every group that the other published.

    Inside, the trainers stand still, so that what was published can be counted.
    """
    for node in (one, two):
        node.wait_status(lambda s: s["groups_external_used"] > 0, "groups of the other used")
    pids = [_trainer_pid(node) for node in (one, two)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        for node, other in ((one, two), (two, one)):
            _has_heard_all_of(node, other)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _trainer_pid(node: ShoalProcess) -> int:
    status = node.view()
    assert status is not None
    return int(status["trainer"]["pid"])


def _has_heard_all_of(node: ShoalProcess, other: ShoalProcess) -> None:
    def told() -> bool | None:
        sent, heard = other.view(), node.view()
        if sent is None or heard is None or sent["outbox"]["unsent"]:
            return None
        same = heard["groups_received"] == sent["groups_published"]
        batches = heard["verdicts"]["accept"] == sent["outbox"]["batches_sent"]
        return True if same and batches else None

    wait_for(told, SHARE_SECONDS, f"{node.data_dir.name} to have all that the other published")
    wait_for(
        lambda: (
            read_archive_file(node.data_dir, own=False)
            == read_archive_file(other.data_dir, own=True)
            or None
        ),
        SHARE_SECONDS,
        "the batches of the other archived as they were signed",
    )
    status = node.view() or {}
    assert status["verdicts"]["reject"] == {}
    assert status["peers"] == 2
    assert status["identity_shared"] is False
    _thinks_well_of(node, other)


def _thinks_well_of(node: ShoalProcess, other: ShoalProcess) -> None:
    held = (node.view("scores") or {})["scores"]
    assert all((row["score"], row["points"], row["bans"]) == (0, {}, 0) for row in held)
    # Merit is its who brought a batch first: the other, or the bootstrap between them.
    assert any(row["merit"] > 0 for row in held)
    rows = {row["peer_id"]: row for row in (node.view("peers") or {})["peers"]}
    assert rows[other.peer_id]["agent"] == f"shoal/{version('shoal')}"
    assert rows[other.peer_id]["topics"], "it is seen on the swarm's topic"


def _both_commands_show_the_same(old: Program, node: ShoalProcess, views: tuple[str, ...]) -> None:
    def same(view: str) -> bool | None:
        told, tells = (steady(debug(program, node.data_dir, view)) for program in (old, PRESENT))
        return told == tells or None

    # More than once, because a node may ask or be asked for something in between.
    for view in views:
        wait_for(lambda v=view: same(v), SHARE_SECONDS, f"both commands to show the same {view}")


def _both_commands_give_orders(old: Program, node: ShoalProcess) -> None:
    for program in (old, PRESENT):
        for order, key, wanted in ORDERS:
            answer = debug(program, node.data_dir, *order)
            assert answer["peer"]["peer_id"] == STRANGER
            assert answer["peer"][key] is wanted, order


def _both_commands_probe(old: Program, node: ShoalProcess, other: ShoalProcess) -> None:
    for program in (old, PRESENT):
        pinged = debug(program, node.data_dir, "ping", other.peer_id, "--count", "1")
        assert (pinged["peer_id"], pinged["answered"]) == (other.peer_id, 1)
        examined = debug(program, node.data_dir, "doctor")
        assert examined["state"] in ("ok", "warn")
    assert run(PRESENT, "debug", "status", "--data-dir", str(node.data_dir)).returncode == 0


def _end(*processes: ShoalProcess) -> None:
    for process in processes:
        assert process.stop() == 0, process.log
        assert "Traceback" not in process.log


@pytest.mark.slow
@pytest.mark.parametrize("role", SERVED)
def test_peers_of_both_name_the_same_protocols(both: Both, role: str) -> None:
    command, *flags = role.split()
    ours = (SERVED[role] | ADDED) - TAKEN_NO_LONGER
    for stage, served in ((both.old, SERVED[role]), (both.new, ours)):
        where = ("--listen", LOOPBACK, *(("--no-trainer", "--no-mdns") if role == "node" else ()))
        peer = stage.process(command, f"{command}-{id(stage)}", *where, *flags).start()
        assert trio.run(protocols_of, peer.address) == served

"""Real processes: a bootstrap peer and nodes with trainers, killed in every promised way."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing

import pytest

from shoal_p2p.state_file import LAST_STATUS, STATE_FILE, read_state
from tests.support.processes import ProcessManager, ShoalProcess, wait_for

pytestmark = pytest.mark.timeout(300)


def _trained_on_others(node: ShoalProcess, groups: int = 1) -> dict[str, object]:
    return node.wait_status(
        lambda s: s["groups_external_used"] >= groups, f"{groups} external groups used"
    )


@pytest.mark.slow
def test_a_node_that_is_killed_with_its_trainer_goes_on_where_it_was(stage: ProcessManager) -> None:
    """As in a power failure; other kills, and what peers see of them, are in the slow test."""
    short = ("--model", "tiny", "--local", "1", "--completions", "2", "--eval-every", "0")
    node = stage.node("one", *short, "--external", "0", "--round-seconds", "0.2")
    before = node.wait_status(lambda s: s["round"] >= 3 and _newest_checkpoint(node) >= 3, "rounds")
    checkpointed, acknowledged = _newest_checkpoint(node), _own_sequences(node)
    os.kill(before["trainer"]["pid"], signal.SIGKILL)
    node.kill()
    node.start()
    assert node.peer_id == before["peer_id"]
    resumed = node.wait_status(
        lambda s: s["trainer"]["connected"] and s["round"] > 0, "its trainer back"
    )
    assert resumed["round"] >= checkpointed
    assert acknowledged
    assert acknowledged <= _own_sequences(node), "an acknowledged batch is never lost"
    node.wait_status(lambda s: s["round"] > resumed["round"], "rounds go on")


@pytest.mark.slow
def test_nodes_learn_from_each_other_and_survive_kills(stage: ProcessManager) -> None:
    """One long test, because starting three trainers takes most of the time."""
    bootstrap = stage.bootstrap()
    flags = ("--round-seconds", "0.2")
    one = stage.node("one", *flags, bootstrap=bootstrap.address)
    two = stage.node("two", *flags, bootstrap=bootstrap.address)
    status = _trained_on_others(one)
    _trained_on_others(two)
    assert status["is_isolated"] is False
    assert status["groups_published"] > 0  # type: ignore[operator]
    assert status["groups_received"] > 0  # type: ignore[operator]

    _kill_the_trainer(one)
    _kill_the_bootstrap(stage, bootstrap, one, two)
    _kill_the_node(one, two)

    assert two.stop() == 0
    assert json.loads(read_state(two.data_dir / STATE_FILE, LAST_STATUS) or b"")["round"] > 0


def _kill_the_trainer(node: ShoalProcess) -> None:
    before = node.wait_status(lambda s: s["trainer"]["round"] >= 3, "some rounds")
    pid = before["trainer"]["pid"]
    os.kill(pid, signal.SIGKILL)
    gone = node.wait_status(lambda s: s["trainer"]["pid"] != pid, "the trainer's death noticed")
    assert gone["peers"] == before["peers"], "the node keeps its peers"
    after = node.wait_status(
        lambda s: s["trainer"]["connected"] and s["round"] > before["round"], "rounds go on"
    )
    assert after["trainer"]["restarts"] == 1


def _kill_the_bootstrap(
    stage: ProcessManager, bootstrap: ShoalProcess, one: ShoalProcess, two: ShoalProcess
) -> None:
    for node in (one, two):
        node.wait_status(lambda s: s["peers"] == 2, "both others connected")
    peer_id, address = bootstrap.peer_id, bootstrap.address
    bootstrap.kill()
    for node in (one, two):
        node.wait_status(lambda s: s["peers"] == 1, "the bootstrap's end noticed")
    received = two.view()["groups_received"]  # type: ignore[index]
    two.wait_status(lambda s: s["groups_received"] > received, "gossip without the bootstrap")
    again = stage.bootstrap()
    assert (again.peer_id, again.address) == (peer_id, address), "stable identity and address"
    for node in (one, two):
        node.wait_status(lambda s: s["peers"] == 2, "the bootstrap found again")


def _kill_the_node(node: ShoalProcess, other: ShoalProcess) -> None:
    before = node.wait_status(lambda s: s["round"] > 0, "rounds")
    checkpointed = _newest_checkpoint(node)
    acknowledged = _own_sequences(node)
    node.kill()
    other.wait_status(lambda s: s["peers"] == 1, "the node's death noticed")
    node.start()
    assert node.peer_id == before["peer_id"]
    after = node.wait_status(lambda s: s["peers"] == 2, "the node back among its peers")
    assert after["is_isolated"] is False
    # It also connects once before it has loaded its checkpoint, without a round to report.
    resumed = node.wait_status(
        lambda s: s["trainer"]["connected"] and s["round"] > 0, "its trainer back"
    )
    assert resumed["round"] >= checkpointed
    assert acknowledged <= _own_sequences(node), "an acknowledged batch is never lost"
    node.wait_status(lambda s: s["outbox"]["unsent"] == 0, "the outbox sent")
    received = other.view()["groups_received"]  # type: ignore[index]
    other.wait_status(lambda s: s["groups_received"] > received, "its batches heard again")
    node.wait_status(lambda s: s["round"] > resumed["round"], "rounds go on")


def _newest_checkpoint(node: ShoalProcess) -> int:
    rounds = [
        int(path.name.split("-")[1].split(".")[0])
        for path in (node.data_dir / "checkpoints").glob("round-*")
        if ".tmp" not in path.name
    ]
    return max(rounds, default=0)


def _own_sequences(node: ShoalProcess) -> set[int]:
    with closing(sqlite3.connect(node.data_dir / "node.db")) as database:
        return {row[0] for row in database.execute("SELECT sequence FROM batches WHERE own = 1")}


@pytest.mark.slow
def test_rounds_end_in_a_clean_exit(stage: ProcessManager) -> None:
    """A single node says that it is alone, trains, and ends by itself; no file is half-written."""
    node = stage.node("alone", "--rounds", "4", "--external", "0")
    assert node.wait() == 0
    assert "training alone" in node.log
    last = json.loads(read_state(node.data_dir / STATE_FILE, LAST_STATUS) or b"")
    assert last["round"] == 4
    assert last["is_isolated"] is True
    assert last["trainer"]["state"] == "finished"
    assert _newest_checkpoint(node) == 4
    assert wait_for(lambda: not (node.data_dir / "node.sock").exists() or None, 5, "socket gone")

"""A data directory passed between an earlier commit and the present one: nothing in it is lost."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from pathlib import Path

import pytest

from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_wire.types import RolloutGroup
from tests.policy.training_cases import external_group
from tests.support import factories as make
from tests.support.data_folder import DataFolder, read_archive_file, read_folder
from tests.support.old_commit import debug, run
from tests.support.processes import (
    LOOPBACK,
    PRESENT,
    Program,
    ShoalProcess,
    Stage,
    open_stage,
    wait_for,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ANSWERS = tuple(str(number) for number in range(1, 21))
"""Of the small questions exactly one is right, so every group carries signal."""
BLOCKED = "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"
PROTECTED = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
FLAGS = (
    *("--listen", LOOPBACK, "--no-mdns", "--checkpoint-seconds", "0.5", "--eval-every", "0"),
    *("--round-seconds", "0.2", "--log", "none", "--local", "2", "--completions", "4"),
)


class Source:
    """A node without a trainer that has groups to share, and keeps what it hears."""

    def __init__(self, stage: Stage) -> None:
        self.process = stage.process("node", "source", *FLAGS, "--no-trainer").start()
        self._number = 0

    def back(self) -> None:
        """Come back after a kill at the same address, but knowing nobody."""
        (self.process.data_dir / "peers.json").unlink(missing_ok=True)
        self.process.start()

    def publish(self, count: int) -> None:
        """Share groups that nobody has seen."""
        for _ in range(count):
            self._number += 1
            group = external_group(self._number, ANSWERS)
            hand_over(self.process, b"of the source %d" % self._number, group)

    def has(self, batches: Mapping[bytes, bytes]) -> bool:
        """Whether these batches have been heard, as they were signed."""
        heard = read_archive_file(self.process.data_dir, own=False)
        return batches.items() <= heard.items()


def hand_over(node: ShoalProcess, key: bytes, *groups: RolloutGroup) -> m.PublishReply:
    """Let `node` share groups that no trainer made."""
    client = NodeClient(node.data_dir / SOCKET_NAME, role=m.Role.PUBLISHER, timeout_seconds=30.0)
    try:
        return client.call(make.publish(groups, key=key), m.PublishReply)
    finally:
        client.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("order", [("old", "new", "old"), ("new", "old", "new")], ids="-".join)
def test_a_folder_goes_from_hand_to_hand(
    tmp_path: Path, old: Program, stage: Stage, order: tuple[str, ...], end: str
) -> None:
    source = Source(stage)
    before = None
    for turn in order:
        program = old if turn == "old" else PRESENT
        before = _one_turn(tmp_path, program, source, before, kill=end == "kill")
        if end == "stop":
            _both_commands_tell_of_the_end(old, tmp_path / "far" / "node")
            _both_commands_export_the_same(old, tmp_path, turn)
        source.back()


def _one_turn(
    root: Path, program: Program, source: Source, before: DataFolder | None, *, kill: bool
) -> DataFolder:
    """Go on in the folder with `program` until there is something of everything in it."""
    # After an end in order the book of peers is enough to find the source again.
    where = ("--bootstrap", source.process.address) if kill or before is None else ()
    with open_stage(root, program) as stage:
        node = stage.process("node", "far/node", *FLAGS, *where).start()
        source.publish(4)
        _goes_on_where_it_was(node, before)
        if before is not None:
            wait_for(lambda: source.has(before.unsent) or None, 60, "the unsent sent")
        _keeps_what_it_was_told(program, node, before)
        source.process.kill()
        node.wait_status(lambda s: s["outbox"]["unsent"] >= 2, "batches that wait for a peer")
        if kill:
            node.kill()
            wait_for(lambda: _trainer_has_ended(node) or None, 60, "the trainer's end")
        else:
            assert node.stop() == 0, node.log
        assert "Traceback" not in node.log
    after = read_folder(node.data_dir)
    _nothing_is_lost(before, after, kill=kill)
    assert source.process.peer_id in after.known_peers or kill
    assert (BLOCKED in after.blocked, PROTECTED in after.protected) == (True, True)
    return after


def _goes_on_where_it_was(node: ShoalProcess, before: DataFolder | None) -> None:
    used = before.counters["groups_external_used"] if before else 0
    round_then = before.checkpoint_round if before else 0
    status = node.wait_status(
        lambda s: (
            s["groups_external_used"] > used
            and s["round"] > round_then
            and s["outbox"]["unsent"] == 0
        ),
        "rounds on groups of the source, all of its own sent",
    )
    assert status["peers"] == 1
    assert status["identity_shared"] is False
    assert status["verdicts"]["reject"] == {}


def _keeps_what_it_was_told(
    program: Program, node: ShoalProcess, before: DataFolder | None
) -> None:
    """The user's orders, and under which key what was handed over."""
    if before is None:
        for order, peer in (("block", BLOCKED), ("protect", PROTECTED)):
            debug(program, node.data_dir, order, peer)
    rows = {row["peer_id"]: row for row in debug(program, node.data_dir, "scores")["scores"]}
    assert rows[BLOCKED]["blocked"] is True
    assert rows[PROTECTED]["protected"] is True
    reply = hand_over(node, b"the same key", external_group(10_000 if before else 20_000, ANSWERS))
    assert reply.is_new is (before is None)
    if before is not None:
        assert (reply.sequence, reply.batch_id) == before.client_keys[b"the same key"]


def _trainer_has_ended(node: ShoalProcess) -> bool:
    """A trainer whose node was killed ends by itself, after a last checkpoint."""
    with (node.data_dir / "trainer.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _nothing_is_lost(before: DataFolder | None, after: DataFolder, *, kill: bool) -> None:
    assert len(after.unsent) >= 2
    assert after.consumed
    assert list(after.rounds) == list(range(1, len(after.rounds) + 1))
    assert len(after.rounds) == after.checkpoint_round
    if before is None:
        return
    assert after.identity == before.identity
    assert after.next_sequence > before.next_sequence
    assert after.client_keys.items() > before.client_keys.items()
    assert after.consumed > before.consumed
    assert after.archived.items() > before.archived.items()
    assert after.known_peers >= before.known_peers
    assert after.checkpoint_round > before.checkpoint_round
    for name in ("groups_external_used", "groups_local_used", "tokens_generated", "num_tokens"):
        assert after.counters[name] > before.counters[name], name
    assert (
        after.counters["first_rewards"][: len(before.counters["first_rewards"])]
        == (before.counters["first_rewards"])
    )


def _both_commands_tell_of_the_end(old: Program, data_dir: Path) -> None:
    for flags in ((), ("--json",)):
        told, tells = (
            run(program, "debug", "status", "--last", *flags, "--data-dir", str(data_dir))
            for program in (old, PRESENT)
        )
        assert (told.returncode, told.stdout) == (tells.returncode, tells.stdout)
        assert told.returncode == 0


def _both_commands_export_the_same(old: Program, root: Path, turn: str) -> None:
    written = []
    for number, program in enumerate((old, PRESENT)):
        out = root / f"export-{turn}-{len(list(root.glob('export-*')))}-{number}"
        where = ("--data-dir", str(root / "far" / "node"), "--out", str(out), "--format", "jsonl")
        done = run(program, "export", *where)
        assert done.returncode == 0, done.stderr
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert written[0] == written[1]
    assert "rollouts.jsonl" in written[0]


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")], ids="-".join)
def test_a_bootstrap_keeps_its_name_its_address_and_its_orders(
    tmp_path: Path, old: Program, order: tuple[str, str]
) -> None:
    said = []
    for turn in order:
        program = old if turn == "old" else PRESENT
        with open_stage(tmp_path, program) as stage:
            bootstrap = stage.bootstrap()
            if not said:
                debug(program, bootstrap.data_dir, "block", BLOCKED)
            scores = debug(program, bootstrap.data_dir, "scores")["scores"]
            said.append((bootstrap.peer_id, bootstrap.ready_line["addresses"], scores))
            assert bootstrap.stop() == 0, bootstrap.log
    assert said[0] == said[1]
    assert [row["peer_id"] for row in said[0][2] if row["blocked"]] == [BLOCKED]

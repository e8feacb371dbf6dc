"""Each group has its effect once, whatever is killed when: trainer, node, or what joins them.

The node is real (server, buffer, store); the trainer's side is its real client and link
around a model that only counts: its weights are how often each group was trained on.
"""

from __future__ import annotations

import random
import socket
from collections import Counter
from pathlib import Path

import pytest

from shoal_ipc import messages as m
from shoal_ipc.client import NodeClient
from shoal_ipc.codec import decode_ipc, encode_ipc
from shoal_p2p.intake.validation import reopen_batch
from shoal_p2p.rollouts.groups import published_groups
from shoal_policy.node.link import NodeLink
from shoal_wire.framing import FrameDecoder, encode_frame
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.types import GroupId
from tests.support import factories as make
from tests.support.local_node import NodeThread, wall_ms

NUM_GROUPS = 120
_WANTED = 3


class FlakyClient(NodeClient):
    """A client whose connection breaks at random: before a request, or before an answer."""

    def __init__(self, path: Path, rng: random.Random, odds: float) -> None:
        super().__init__(path, timeout_seconds=20.0)
        self._rng = rng
        self.odds = odds

    def ensure(self) -> bool:
        self._retry_at = 0.0  # tests do not wait for backoff
        return super().ensure()

    def _send(self, connection, body):
        self._maybe_break("before the request")
        super()._send(connection, body)

    def _read_answer(self, connection, request_id, deadline):
        self._maybe_break("before the answer")
        return super()._read_answer(connection, request_id, deadline)

    def _read_arrived(self, connection):
        self._maybe_break("with answers unread")
        super()._read_arrived(connection)

    def _maybe_break(self, when: str) -> None:
        if self._rng.random() < self.odds:
            raise ConnectionResetError(f"broken {when}")


class Killed(Exception):  # noqa: N818 - an event
    """The trainer was killed here."""


class CountingTrainer:
    """A trainer in the order of `shoal_policy.sapo`, with a checkpoint that survives its death."""

    def __init__(self, path: Path, rng: random.Random, odds: float) -> None:
        self._path = path
        self._rng = rng
        self._odds = odds
        self.saved: tuple[Counter[GroupId], tuple[GroupId, ...]] = (Counter(), ())
        self.client: FlakyClient
        self.start()

    def start(self) -> None:
        """Load the checkpoint and connect, as a fresh process does."""
        self.client = FlakyClient(self._path, self._rng, self._odds)
        self.link = NodeLink(self.client)
        weights, consumed = self.saved
        self.weights = Counter(weights)
        self.link.restore_consumed(consumed)

    def kill(self) -> None:
        """Lose all but the checkpoint."""
        self.client.close()
        self.start()

    def round(self) -> int:
        """Train on up to three external groups; return how many were drawn."""
        used: list[GroupId] = []
        drawn = 0
        if self._rng.random() < 0.5:
            self.link.lease_ahead(_WANTED)
            self._maybe_die()
        while len(used) < _WANTED and drawn < 4 * _WANTED:
            leased = self.link.sample(_WANTED)
            if not leased:
                break
            drawn += len(leased)
            ids = [item.group_id for item in leased]
            take = ids[: min(_WANTED - len(used), self._rng.randint(1, _WANTED))]
            used += take
            self._maybe_die()
            self.link.report(
                [
                    m.GroupReport(
                        group_id=item.group_id,
                        publisher=item.publisher,
                        rewards=(0.0, 1.0),
                    )
                    for item in leased
                ]
            )
            self.link.end_leases(released=[group for group in ids if group not in take])
        self._maybe_die()
        self.weights.update(used)
        self.link.hold_until_checkpoint(used)
        self._maybe_die()
        return drawn

    def checkpoint(self) -> None:
        """Save, then acknowledge."""
        self.link.flush()
        self.saved = (Counter(self.weights), self.link.consumed_for_checkpoint())
        self._maybe_die()
        self.link.consume_held()

    def _maybe_die(self) -> None:
        if self._rng.random() < self._odds / 4:
            raise Killed


@pytest.mark.parametrize("seed", range(2))
def test_every_group_is_trained_on_exactly_once(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    manifest = make.swarm()
    author = make.Author(manifest, now_ms=wall_ms())
    with NodeThread(tmp_path, manifest=manifest) as node:
        trainer = CountingTrainer(node.node.socket_path, rng, odds=0.08)
        for first in range(0, NUM_GROUPS, 2):
            # Few at a time: a group that wrongly comes back is drawn again soon.
            node.call(node.node.receive, author.sign(first, first + 1))
            _something_happens(rng, node, trainer)
        trainer.client.odds = trainer._odds = 0.0
        assert trainer.client.ensure()
        while trainer.round() or trainer.round():  # the first may find the connection broken
            pass
        trainer.checkpoint()
        assert set(trainer.weights.values()) == {1}
        assert len(trainer.weights) == NUM_GROUPS
        # And the node agrees, also after it has forgotten all that was not on disk.
        node.restart()
        assert trainer.round() == 0


def _something_happens(rng: random.Random, node: NodeThread, trainer: CountingTrainer) -> None:
    event = rng.random()
    try:
        if event < 0.1:
            node.restart()
        elif event < 0.15:
            trainer.kill()
        elif event < 0.4:
            trainer.checkpoint()
        else:
            trainer.round()
    except Killed:
        trainer.kill()


def test_every_shared_batch_goes_out_exactly_once(tmp_path: Path) -> None:
    rng = random.Random(1)
    with NodeThread(tmp_path) as node:
        client = FlakyClient(node.node.socket_path, rng, odds=0.2)
        link = NodeLink(client)
        shared = 60
        for number in range(shared):
            link.share(make.publish([make.group(number)], key=b"batch %d" % number))
            if rng.random() < 0.1:
                node.restart()
        client.odds = 0.0
        assert link.flush()
        node.call(node.node.outbox.drained)
        node.kill()
        sent = {data: reopen_batch(data, max_bytes=MAX_BATCH_BYTES) for data in node.published}
    assert sorted(signed.batch.sequence for signed in sent.values()) == list(range(1, shared + 1))
    groups = Counter(g.group_id for signed in sent.values() for g in published_groups(signed))
    assert set(groups.values()) == {1}
    assert len(groups) == shared
    by_sequence = sorted(sent.values(), key=lambda signed: signed.batch.sequence)
    seeds = [signed.batch.groups[0].task.seed for signed in by_sequence]
    assert seeds == sorted(seeds)


def test_a_hello_that_is_read_late_takes_nothing_from_a_later_connection(tmp_path: Path) -> None:
    manifest = make.swarm()
    with NodeThread(tmp_path, manifest=manifest) as node:
        node.call(node.node.receive_groups, 0, 1)
        link = NodeLink(later := node.node.client())
        with socket.socket(socket.AF_UNIX) as early:
            early.settimeout(20.0)
            early.connect(str(node.node.socket_path))
            held = [item.group_id for item in link.sample(2)]
            hello = m.Hello(
                ipc_version=m.IPC_VERSION, role=m.Role.TRAINER, pid=1, held_ids=(held[0],)
            )
            frame = m.IpcFrame(request_id=1, body=hello)
            early.sendall(encode_frame(encode_ipc(frame)))
            (answer,) = FrameDecoder().feed(early.recv(1 << 16))
            assert isinstance(decode_ipc(answer).body, m.Failure)
        link.drain()
        assert later.connects == 1
        assert node.node.buffer.ready() == 0

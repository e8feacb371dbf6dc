"""A trainer without a model, to be killed: `python -m benchmarks.consumer DATA_DIR FOLDER SEED`.

It keeps its books with the trainer's own `NodeLink`: a group is held once it has had its effect,
consumed once a checkpoint names it. Its weights are the list of the groups it was trained on, so
a group lost or trained twice can be read off the last checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.groups import make_group, publish_request
from benchmarks.texts import reasoning
from shoal_ipc.client import SOCKET_NAME, NodeClient
from shoal_policy.node.link import NodeLink
from shoal_policy.node.outgoing import MAX_WAITING_BATCHES
from shoal_wire.digests import group_id
from shoal_wire.types import Digest, GroupId, RolloutGroup, Task

CHECKPOINT_FILE = "checkpoint.json"
ACKNOWLEDGED_FILE = "acknowledged.txt"
_GROUPS_PER_ROUND = 16
_ROUNDS_PER_CHECKPOINT = 8
_ROUND_SECONDS = 0.1
_GIVE_BACK_SHARE = 0.1


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """Return the last checkpoint: round, weights and ids, hexadecimal."""
    path = folder / CHECKPOINT_FILE
    if not path.exists():
        return {"round": 0, "weights": [], "consumed_ids": []}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def own_group(round_: int) -> RolloutGroup:
    """Return the group that a round publishes: the same when the round is repeated."""
    rng = random.Random(round_)
    task = Task(
        family="addition",
        config_digest=Digest(bytes(16)),
        seed=rng.randrange(1 << 20, 1 << 31),
        index=0,
        verifier="reasoning_gym",
        verifier_version="1",
        question_digest=Digest(rng.randbytes(16)),
    )
    return make_group(task, reasoning, rng, num_chars=200)


class Consumer:
    """Samples, trains, checkpoints, acknowledges, until its parent is gone."""

    def __init__(self, data_dir: Path, folder: Path, seed: int) -> None:
        self._folder = folder
        self._link = NodeLink(NodeClient(data_dir / SOCKET_NAME, timeout_seconds=10))
        self._rng = random.Random(seed)
        state = read_checkpoint(folder)
        self._round: int = state["round"]
        self._weights: list[str] = state["weights"]
        self._since_checkpoint = 0
        self._unconfirmed: list[GroupId] = []
        self._link.restore_consumed([GroupId(bytes.fromhex(i)) for i in state["consumed_ids"]])

    def run(self) -> None:
        """Play rounds for ever."""
        parent = os.getppid()
        while os.getppid() == parent:
            trained = self._play()
            self._since_checkpoint += trained
            # Held groups must outlive a node's restart, so rounds without groups do not count.
            idle = not trained and self._link.connected
            if idle or self._since_checkpoint == _ROUNDS_PER_CHECKPOINT:
                self._checkpoint()
            time.sleep(_ROUND_SECONDS)

    def _play(self) -> bool:
        """Share a group, train on others'; return whether there were any."""
        self._round += 1
        group = own_group(self._round)
        self._link.share(publish_request(self._round, (group,), round_=self._round))
        self._unconfirmed.append(group_id(group))
        del self._unconfirmed[:-MAX_WAITING_BATCHES]  # as the link drops them
        if self._link.flush():
            self._note_acknowledged()
        ids = [item.published.group_id for item in self._link.sample(_GROUPS_PER_ROUND)]
        spare = [i for i in ids if self._rng.random() < _GIVE_BACK_SHARE]
        used = [i for i in ids if i not in spare]
        if spare:
            self._link.end_leases(released=spare)
        self._weights += [i.hex() for i in used]
        self._link.hold_until_checkpoint(used)
        return bool(ids)

    def _checkpoint(self) -> None:
        """Write atomically, as the trainer does: a kill leaves the old one or the new one."""
        state = {
            "round": self._round,
            "weights": self._weights,
            "consumed_ids": [i.hex() for i in self._link.consumed_for_checkpoint()],
        }
        partial = self._folder / f"{CHECKPOINT_FILE}.tmp"
        with partial.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._folder / CHECKPOINT_FILE)
        self._since_checkpoint = 0
        self._link.consume_held()

    def _note_acknowledged(self) -> None:
        """Record what the node has promised, outside the checkpoint."""
        with (self._folder / ACKNOWLEDGED_FILE).open("a") as file:
            file.write("".join(i.hex() + "\n" for i in self._unconfirmed))
        self._unconfirmed.clear()


if __name__ == "__main__":
    Consumer(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])).run()

"""A node's data directory as if it had received groups: real signed batches in its database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.groups import POLICY, SAMPLING
from shoal_p2p.data_dir import IDENTITY_FILE
from shoal_p2p.net.identity import Identity, identity_from_seed, load_or_create_identity
from shoal_p2p.peers.manifest_source import manifest_of_settings
from shoal_p2p.state_file import STATE_FILE
from shoal_p2p.store.store import StoreCore
from shoal_settings.schema import Settings
from shoal_wire.codec import encode_batch
from shoal_wire.digests import batch_id
from shoal_wire.envelope import seal
from shoal_wire.types import Digest, RolloutBatch, RolloutGroup

SWARM_NAME = "bench-stored"
NUM_PUBLISHERS = 20
_GROUPS_PER_BATCH = 4


def fill(data_dir: Path, groups: Sequence[RolloutGroup]) -> None:
    """Store `groups` as batches of other publishers; the node restores them when it starts."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    me = load_or_create_identity(data_dir / IDENTITY_FILE)
    publishers = [identity_from_seed(bytes([n]) * 32) for n in range(1, NUM_PUBLISHERS + 1)]
    now_ms = int(time.time() * 1000)
    swarm = manifest_of_settings(Settings(swarm_name=SWARM_NAME)).digest
    calls = []
    for number, start in enumerate(range(0, len(groups), _GROUPS_PER_BATCH)):
        publisher = publishers[number % NUM_PUBLISHERS]
        sequence = number // NUM_PUBLISHERS + 1
        chosen = groups[start : start + _GROUPS_PER_BATCH]
        envelope = _sealed(publisher, swarm, sequence, now_ms, chosen)
        calls.append(
            lambda core, p=publisher.peer_id, s=sequence, e=envelope: core.add_external(
                batch_id(e), p, s, e, now_ms
            )
        )
    core = StoreCore(data_dir / STATE_FILE, peer_id=me.peer_id)
    core.commit(lambda opened: [call(opened) for call in calls])
    core.close()


def _sealed(
    publisher: Identity, swarm: Digest, sequence: int, now_ms: int, groups: Sequence[RolloutGroup]
) -> bytes:
    batch = RolloutBatch(
        swarm_digest=swarm,
        sequence=sequence,
        round=sequence,
        created_ms=now_ms,
        policy=POLICY,
        sampling=SAMPLING,
        groups=tuple(groups),
    )
    return seal(encode_batch(batch), public_key=publisher.public_key_bytes, sign=publisher.sign)

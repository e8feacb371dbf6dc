"""Programs that run on the old commit's tree, with its own modules under their own names."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import Program

DEEDS = """
# Proof of two batches under one number, and a ban: what no honest run brings about.
import sys, time
from dataclasses import replace
from pathlib import Path
from p2p.identity import load_or_create_identity
from p2p.reputation import Reputation
from p2p.reputation_file import load_reputation, save_reputation
from p2p.scoring import Cause
from p2p.store_core import StoreCore
from shoal_wire.codec import decode_batch, encode_batch
from shoal_wire.digests import batch_id
from shoal_wire.envelope import open_envelope, seal
from shoal_wire.limits import MAX_BATCH_BYTES

one, two = map(Path, sys.argv[1:])
me, other = (load_or_create_identity(folder / "identity.key") for folder in (one, two))
wall_ms = int(time.time() * 1000)
store = StoreCore(one / "node.db", peer_id=me.peer_id)
first = min((b for b in store.load().batches if not b.own), key=lambda b: b.sequence)
batch = decode_batch(open_envelope(first.envelope).payload, max_bytes=MAX_BATCH_BYTES)
twin = encode_batch(replace(batch, round=batch.round + 1))
second = seal(twin, public_key=other.public_key_bytes, sign=other.sign)
accuse = lambda core: core.add_equivocation(
    first.publisher, first.sequence, first.batch_id, second, now_ms=wall_ms
)
store.commit([accuse])
store.close()
reputation = Reputation()
load_reputation(one / "reputation.json", reputation, 0.0, wall_ms=wall_ms)
for _ in range(20):
    reputation.charge(other.peer_id, Cause.SIGNED_HEAVY, 0.0)
assert reputation.ban_due(other.peer_id, 0.0)
save_reputation(one / "reputation.json", reputation.to_json(0.0, wall_ms=wall_ms))
"""


def in_old_tree(old: Program, *arguments: str) -> str:
    """Run Python on the old tree; return what it prints."""
    return subprocess.run(
        [sys.executable, *arguments],
        check=True,
        cwd=old.tree,
        env={**old.environment, "PATH": ""},
        stdout=subprocess.PIPE,
        text=True,
    ).stdout

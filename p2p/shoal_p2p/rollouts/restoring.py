"""Batches that an earlier run left on disk go back into buffer and ledger; others have turns.

    store ─▶ a few envelopes ─▶ opened in a thread ─▶ ledger ─▶ buffer, a few groups at a time

A full buffer is seconds of work. In one piece it would let the pings of peers pass their deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.intake.ledger import PublisherLedger
from shoal_p2p.intake.validation import Rejected, reopen_batch
from shoal_p2p.intake.weight import weight_of
from shoal_p2p.store.store import Store
from shoal_p2p.store.types import StoredBatch
from shoal_wire.digests import group_id
from shoal_wire.manifest import Manifest
from shoal_wire.types import PeerId, SignedBatch

log = logging.getLogger(__name__)

BATCHES_A_STEP = 16
"""Number of envelopes that are read from disk, and opened, at a time."""
IDS_A_STEP = 1024
"""Number of consumed ids that the buffer takes before everybody else has a turn."""

TakeBack = Callable[[SignedBatch, StoredBatch], Awaitable[None]]
"""Puts an opened batch into the buffer."""


async def restore(
    *,
    store: Store,
    buffer: ReplayBuffer,
    ledger: PublisherLedger,
    take_back: TakeBack,
    me: PeerId,
    manifest: Manifest,
) -> None:
    """Fill buffer and ledger from disk; damaged batches are named and left out."""
    state = await store.load()
    for start in range(0, len(state.consumed_ids), IDS_A_STEP):
        buffer.consume(state.consumed_ids[start : start + IDS_A_STEP])
        await trio.lowlevel.checkpoint()
    for start in range(0, len(state.batch_ids), BATCHES_A_STEP):
        found = await store.batches(state.batch_ids[start : start + BATCHES_A_STEP])
        for signed, stored in zip(await _opened(found, store, manifest), found, strict=True):
            if isinstance(signed, Rejected):
                log.warning("a stored batch is damaged (%s); left out", signed.reason)
            elif signed.batch.swarm_digest == manifest.digest:  # else of one that was left
                if (who := signed.publisher) != me:
                    number, now = signed.batch.sequence, trio.current_time()
                    ledger.remember(who, number, signed.batch_id, now)
                await take_back(signed, stored)
    log.debug("restored %d batches", len(state.batch_ids))


async def _opened(
    found: list[StoredBatch], store: Store, manifest: Manifest
) -> list[SignedBatch | Rejected]:
    """Return the batch in each envelope, or why there is none; the groups' digests and weights
    are known then."""
    max_bytes = manifest.rules.max_batch_bytes
    return await store.in_thread(lambda: [_open(one.envelope, max_bytes) for one in found])


def _open(envelope: bytes, max_bytes: int) -> SignedBatch | Rejected:
    try:
        signed = reopen_batch(envelope, max_bytes=max_bytes)
    except Rejected as rejected:
        return rejected
    for group in signed.batch.groups:
        group_id(group)
        weight_of(group)
    return signed

"""The index, in memory, of the batches that this node can serve from disk. Pure.

Only valid batches of the current swarm are listed. The oldest are dropped first; a batch that is no
longer on disk is removed at the first request for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from shoal_base.bounded import MANY, BoundedDict
from shoal_p2p.events import BatchStored, BatchWithdrawn, Event
from shoal_wire.manifest import Manifest
from shoal_wire.rollout_messages import BatchRef
from shoal_wire.types import BatchId, PeerId, SignedBatch

MAX_BATCHES = 2 * MANY
"""About 4 MiB of index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelvedBatch:
    """One servable batch."""

    ref: BatchRef
    shards: tuple[int, ...]
    """Shards to which it belongs."""
    created_ms: int
    received_ms: int


class BatchIndex:
    """Batches by id, in order of arrival."""

    def __init__(self, manifest: Manifest, *, max_batches: int = MAX_BATCHES) -> None:
        self._manifest = manifest
        self._held: BoundedDict[BatchId, ShelvedBatch] = BoundedDict(max_batches)
        self._by_publisher: dict[PeerId, dict[int, BatchId]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def on_event(self, event: Event) -> None:
        """Add stored batches, and remove withdrawn ones."""
        match event:
            case BatchStored():
                self.put(event.signed, received_ms=event.received_ms)
            case BatchWithdrawn():
                self.remove(event.batch_id)

    def put(self, signed: SignedBatch, *, received_ms: int) -> None:
        """Add a valid batch that is on disk."""
        if signed.batch_id in self._held:
            return
        ref = BatchRef(
            batch_id=signed.batch_id,
            publisher=signed.publisher,
            sequence=signed.batch.sequence,
            num_bytes=len(signed.envelope),
            num_groups=len(signed.batch.groups),
        )
        held = ShelvedBatch(
            ref=ref,
            shards=self._manifest.path(
                signed.publisher, self._manifest.key_of(signed.batch.groups[0].task)
            ),
            created_ms=signed.batch.created_ms,
            received_ms=received_ms,
        )
        self._by_publisher.setdefault(ref.publisher, {})[ref.sequence] = ref.batch_id
        oldest = self._held.put(ref.batch_id, held)
        if oldest is not None:
            self._unlist(oldest[1].ref)

    def remove(self, batch_id: BatchId) -> None:
        """Remove a batch."""
        held = self._held.pop(batch_id, None)
        if held is not None:
            self._unlist(held.ref)

    def _unlist(self, ref: BatchRef) -> None:
        sequences = self._by_publisher[ref.publisher]
        sequences.pop(ref.sequence, None)
        if not sequences:
            del self._by_publisher[ref.publisher]

    def get(self, batch_id: BatchId) -> ShelvedBatch | None:
        """Return a servable batch, or None."""
        return self._held.get(batch_id)

    def recent(
        self, *, now_ms: int, max_age_seconds: int, before: BatchId | None = None
    ) -> Iterator[ShelvedBatch]:
        """Yield batches received within `max_age_seconds` and still valid by age, newest first.

        With `before`, only those received before that batch.
        """
        oldest_ms = now_ms - 1000 * max_age_seconds
        newest_first: Iterator[BatchId] = reversed(self._held)
        if before is not None:
            newest_first = itertools.islice(
                itertools.dropwhile(before.__ne__, newest_first), 1, None
            )
        for batch_id in newest_first:
            held = self._held[batch_id]
            if held.received_ms < oldest_ms:
                return
            if self._is_young(held, now_ms):
                yield held

    def since(self, publisher: PeerId, sequence: int, *, now_ms: int) -> list[ShelvedBatch]:
        """Return a publisher's batches above `sequence`, the lowest number first."""
        known = self._by_publisher.get(publisher, {})
        found = [self._held[known[number]] for number in sorted(known) if number > sequence]
        return [held for held in found if self._is_young(held, now_ms)]

    def _is_young(self, held: ShelvedBatch, now_ms: int) -> bool:
        return now_ms - held.created_ms <= self._manifest.rules.max_age_seconds * 1000

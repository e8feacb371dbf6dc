"""Others' batches that came while the disk was full wait here until there is room.

    write() ─▶ store, or full: kept here, within a bound in bytes ─▶ write_waiting(), now and then

The groups are in the buffer meanwhile. Only the envelopes wait, which are opened again once they
are on disk. What does not fit the bound is counted, and told in one line when the rest is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from shoal_p2p.intake.ledger import Equivocation
from shoal_p2p.intake.validation import Rejected
from shoal_p2p.rollouts.reopening import Reopener
from shoal_p2p.store.store import Store
from shoal_p2p.store.types import StoredBatch, StoreError, StoreFault
from shoal_wire.types import BatchId, PeerId, SignedBatch

log = logging.getLogger(__name__)

MAX_BYTES = 16 * 1024 * 1024
"""Bound of the envelopes that wait, in bytes; the oldest makes room for the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Two batches under one number: which they are, and the second as it was signed."""

    pair: Equivocation
    second: bytes


Item = StoredBatch | Evidence
Key = BatchId | tuple[PeerId, int]


class Unwritten:
    """Writes others' batches, and evidence against them; on a full disk, later."""

    def __init__(
        self,
        *,
        store: Store,
        reopener: Reopener,
        on_late: Callable[[SignedBatch, StoredBatch], None],
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`on_late` is told of each batch that has waited and is on disk now."""
        self._store = store
        self._reopener = reopener
        self._on_late = on_late
        self._max_bytes = max_bytes
        self._waiting: dict[Key, Item] = {}
        """From the oldest to the newest."""
        self._num_bytes = 0
        self._num_lost = 0

    async def write(self, item: Item) -> bool:
        """Write now, or once there is room; return whether it is on disk."""
        try:
            await self._store_it(item)
        except StoreError as error:
            if error.fault is StoreFault.FULL:
                self._keep(item)
            else:
                log.warning("%s: %s", _not_written(item), error)
            return False
        return True

    def forget(self, batch_id: BatchId) -> None:
        """Do not write a batch that was withdrawn."""
        self._drop(batch_id)

    async def write_waiting(self, find_useful: Callable[[], Collection[BatchId]]) -> None:
        """Write what waits as far as there is room, of the batches those that are useful yet."""
        useful = find_useful() if self._waiting else ()
        for key, item in list(self._waiting.items()):
            if isinstance(item, StoredBatch) and item.batch_id not in useful:
                self._drop(key)
        for key, item in list(self._waiting.items()):
            if key not in self._waiting:  # withdrawn since
                continue
            try:
                await self._store_it(item)
            except StoreError as error:
                if error.fault is StoreFault.FULL:
                    return
                log.warning("%s: %s", _not_written(item), error)
                self._drop(key)
                continue
            if self._drop(key) and isinstance(item, StoredBatch):
                await self._tell(item)
        self.tell_lost()

    def tell_lost(self) -> None:
        """Say how many were not written, if any were not."""
        if self._num_lost:
            log.warning(
                "the disk was full for too long: %d batches of others are not on it, since no more"
                " than %d MiB wait for room",
                self._num_lost,
                self._max_bytes >> 20,
            )
            self._num_lost = 0

    async def _store_it(self, item: Item) -> None:
        if isinstance(item, Evidence):
            pair = item.pair
            await self._store.add_equivocation(
                pair.publisher, pair.sequence, pair.first, item.second
            )
            return
        await self._store.add_external(
            item.batch_id,
            item.publisher,
            item.sequence,
            item.envelope,
            item.received_ms,
            item.bringer,
        )

    async def _tell(self, stored: StoredBatch) -> None:
        (signed,) = await self._reopener.open([stored.envelope])
        if not isinstance(signed, Rejected):
            self._on_late(signed, stored)

    def _keep(self, item: Item) -> None:
        self._drop(_key(item))
        self._waiting[_key(item)] = item
        self._num_bytes += _size(item)
        while self._num_bytes > self._max_bytes:
            self._drop(next(iter(self._waiting)))
            self._num_lost += 1

    def _drop(self, key: Key) -> bool:
        item = self._waiting.pop(key, None)
        if item is None:
            return False
        self._num_bytes -= _size(item)
        return True


def _key(item: Item) -> Key:
    if isinstance(item, Evidence):
        return item.pair.publisher, item.pair.sequence
    return item.batch_id


def _size(item: Item) -> int:
    return len(item.second if isinstance(item, Evidence) else item.envelope)


def _not_written(item: Item) -> str:
    return "evidence not kept" if isinstance(item, Evidence) else "batch kept in memory only"

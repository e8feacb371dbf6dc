"""Remembers other batches with a buffered group, to replace it if it is removed. No I/O.

    group is buffered already ─▶ add ─▶ it is removed ─▶ take: the batch to read from disk

The first publisher of a content is credited with it, even if it copied it, and can remove it again:
with a second batch under the same number, or by displacing it. Then the next publisher's copy is
used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from shoal_base.bounded import BoundedDict
from shoal_p2p.buffer.pool import share_key_of
from shoal_p2p.buffer.types import BufferEntry
from shoal_p2p.store.types import Deliverer
from shoal_wire.types import BatchId, GroupId, PeerId

MAX_COPIES = 8
"""Batches remembered for a group, one per publisher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A batch on disk whose groups were buffered already when it arrived."""

    batch_id: BatchId
    publisher: PeerId
    received_at: float
    """Seconds, on the buffer's clock."""
    deliverer: Deliverer | None
    source: str
    """The network that delivered it, and whether it was published or forwarded there."""


class DuplicateIndex:
    """Remembers at most `MAX_COPIES` batches for each of at most `max_groups` groups."""

    def __init__(self, max_groups: int) -> None:
        self._of: BoundedDict[GroupId, list[Copy]] = BoundedDict(max_groups)

    def __iter__(self) -> Iterator[GroupId]:
        return iter(tuple(self._of))

    def add(self, entry: BufferEntry) -> None:
        """Remember the batch of a group that another publisher delivered before.

        Beyond the limit, the latest one of the source with the most is dropped.
        """
        copy = Copy(
            batch_id=entry.group.batch_id,
            publisher=entry.group.publisher,
            received_at=entry.received_at,
            deliverer=Deliverer(peer_id=PeerId(entry.connection), network=entry.network)
            if entry.connection
            else None,
            source=", ".join(share_key_of(entry)[:2]),
        )
        copies = self._of.setdefault(entry.group.group_id, [])
        if copy.publisher not in [one.publisher for one in copies]:
            copies.append(copy)
        if len(copies) > MAX_COPIES:
            (most, _), *_ = Counter(one.source for one in copies).most_common(1)
            copies.remove([one for one in copies if one.source == most][-1])

    def take(self, group_id: GroupId) -> Copy | None:
        """Remove and return the earliest batch with a group."""
        copies = self._of.get(group_id)
        if not copies:
            return None
        first = copies.pop(0)
        if not copies:
            del self._of[group_id]
        return first

    def forget(self, group_id: GroupId) -> None:
        """Forget all batches with a group."""
        self._of.pop(group_id, None)

    def batch_ids(self) -> set[BatchId]:
        """Return all batches that may be needed."""
        return {copy.batch_id for copies in self._of.values() for copy in copies}

"""The latest number of this node's own batches on each topic key, also after a restart. Pure."""

from __future__ import annotations

from shoal_p2p.events import BatchStored, Event
from shoal_wire.manifest import Manifest


class OwnNumbers:
    """Follows the pool's events: a start restores the batches that are on disk."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._latest: dict[int, int] = {}

    def on_event(self, event: Event) -> None:
        """Record an own batch that is on disk."""
        if isinstance(event, BatchStored) and event.own:
            batch = event.signed.batch
            self.record(self._manifest.key_of(batch.groups[0].task), batch.sequence)

    def record(self, key: int, sequence: int) -> None:
        """Record an own batch by its number."""
        self._latest[key] = max(sequence, self._latest.get(key, 0))

    def latest(self, key: int) -> int:
        """Return the number of the latest own batch of a topic key; 0 if none is known."""
        return self._latest.get(key, 0)

"""Decodes stored envelopes again outside the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from shoal_p2p.intake.validation import Rejected, reopen_batch, weight_of
from shoal_p2p.threads import InThread
from shoal_wire.digests import group_id
from shoal_wire.types import SignedBatch

T = TypeVar("T")


class Reopener:
    """Opens envelopes from this node's own disk, one call at a time."""

    def __init__(self, in_thread: InThread, *, max_bytes: int) -> None:
        """`max_bytes` is the limit on a decompressed batch."""
        self._in_thread = in_thread
        self._max_bytes = max_bytes
        self._one_at_a_time = trio.CapacityLimiter(1)

    async def open(self, envelopes: Sequence[bytes]) -> list[SignedBatch | Rejected]:
        """Return the batch in each envelope, or why there is none.

        Digests and weights of the groups are known when this returns.
        """
        return await self.in_thread(lambda: [self._open(envelope) for envelope in envelopes])

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Call `function` in a thread and return its result."""
        return await self._in_thread(function, limiter=self._one_at_a_time)

    def _open(self, envelope: bytes) -> SignedBatch | Rejected:
        try:
            signed = reopen_batch(envelope, max_bytes=self._max_bytes)
        except Rejected as rejected:
            return rejected
        for group in signed.batch.groups:
            group_id(group)
            weight_of(group)
        return signed

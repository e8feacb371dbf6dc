"""Payloads opened at their price: what unpacks to much leaves the loop, and has a bound in bytes.

    declared size ─▶ room? ─▶ small: here ───────────────────▶ batch, rules, digests
                        ├───▶ middling: parsed, little in it: here ──▲  ▲
                        └───▶ large, or much in it: in a thread ────────┘

A few kilobytes on the wire may be megabytes and thousands of objects.  What a message cost is
counted, not timed (`weight.work_of`): a busy machine makes nobody guilty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from shoal_base.bounded import QUEUE_BYTES
from shoal_p2p.fair import ShareKey
from shoal_p2p.fair.limiter import FairLimiter
from shoal_p2p.intake.validation import Rejected
from shoal_p2p.intake.weight import is_light, weight_of
from shoal_p2p.threads import InThread
from shoal_wire.codec import ParsedBatch
from shoal_wire.digests import group_id
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.types import SignedBatch
from shoal_wire.verdict import Reason

T = TypeVar("T")

HEAVY_BYTES = 8 * 1024
"""Unpacked; more than that may be opened in a thread. Some four milliseconds at the worst."""
PARSED_BYTES = 32 * 1024
"""Unpacked; up to that it is parsed to see how much is in it, and opened here if that is little."""
LIGHT_S = 0.002
"""Work by count, in seconds: some twenty groups of eight. A thread costs as much as five groups."""
MAX_OPEN_BYTES = QUEUE_BYTES
"""Unpacked, of all messages that are being judged at once."""
MAX_OPEN_BYTES_OF_NETWORK = MAX_OPEN_BYTES // 2
"""Bound for one network: whatever its names, the others have as much left."""
MAX_OPEN_BYTES_OF_PEER = MAX_BATCH_BYTES
"""Bound for one forwarder: one batch of the greatest size there is."""


class BatchDecoder:
    """Opens payloads; bounded in bytes, for each forwarder, for each network and for all."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._one_at_a_time = FairLimiter(1)
        self._open_bytes: Counter[ShareKey] = Counter()
        """Bytes open for each network and each of its peers."""

    @contextmanager
    def room_for(self, by: ShareKey, num_bytes: int) -> Iterator[None]:
        """Hold the room of a payload that declares `num_bytes` while its message is judged.

        `by` is the network and the peer that brought it.

        Raises:
            Rejected: there is no room now; nobody's fault.
        """
        size, held = min(num_bytes, MAX_BATCH_BYTES), self._open_bytes
        bounds = (MAX_OPEN_BYTES, MAX_OPEN_BYTES_OF_NETWORK, MAX_OPEN_BYTES_OF_PEER)
        shares = [by[:depth] for depth in range(len(bounds))]
        if any(held[share] + size > bound for share, bound in zip(shares, bounds, strict=True)):
            raise Rejected(Reason.BUSY)
        held.update(dict.fromkeys(shares, size))
        try:
            yield
        finally:
            held.subtract(dict.fromkeys(shares, size))
            for share in shares:
                if not held[share]:
                    del held[share]

    async def open(
        self,
        open_payload: Callable[[ParsedBatch | None], SignedBatch],
        num_bytes: int,
        by: ShareKey,
        *,
        parse: Callable[[], ParsedBatch],
    ) -> SignedBatch:
        """Return what `open_payload` does, out of the loop if it unpacks to much. Raises Rejected.

        It is given what `parse` returns where that was looked at. Digests and weights of the groups
        are known when this returns.
        """

        def open_it() -> SignedBatch:
            signed = open_payload(parsed)
            for group in signed.batch.groups:
                group_id(group)
                weight_of(group)
            return signed

        parsed = None
        if num_bytes <= HEAVY_BYTES:
            return open_it()
        if num_bytes <= PARSED_BYTES:
            parsed = parse()
            if is_light(parsed, LIGHT_S):
                return open_it()
        return await self.in_thread(open_it, by)

    async def in_thread(self, open_it: Callable[[], T], by: ShareKey) -> T:
        """Return what `open_it` does, out of the loop, one at a time. Raises what it raises."""
        async with self._one_at_a_time.slot(by):
            return await self._in_thread(open_it)

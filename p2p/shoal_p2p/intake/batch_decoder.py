"""Decodes batch payloads within a memory limit, large ones in a thread.

    declared size ─▶ within the limit? ─▶ small: in the event loop ─────────▶ batch, rules, digests
                        ├───▶ medium: parsed; few objects: in the event loop ──▲  ▲
                        └───▶ large, or many objects: in a thread ────────────────┘

A few kilobytes on the wire may be megabytes and thousands of objects. The cost of a message is
computed from counts, not from elapsed time (`work_of`), so a busy machine accuses no peer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from shoal_base.bounded import QUEUE_BYTES
from shoal_p2p.fair import ShareKey
from shoal_p2p.fair.limiter import FairLimiter
from shoal_p2p.intake.validation import (
    Rejected,
    ValidationContext,
    is_light,
    open_payload,
    parse_payload,
    weight_of,
)
from shoal_p2p.threads import InThread
from shoal_wire.codec import declared_size
from shoal_wire.digests import group_id
from shoal_wire.envelope import SignedEnvelope
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.types import PeerId, SignedBatch
from shoal_wire.verdict import Reason

T = TypeVar("T")

HEAVY_BYTES = 8 * 1024
"""Decompressed size above which a payload may be decoded in a thread: some 4 ms of work."""
PARSED_BYTES = 32 * 1024
"""Decompressed size up to which a payload is parsed to count its objects; few decode inline."""
LIGHT_S = 0.002
"""Limit of inline work in seconds: some twenty groups of eight. A thread costs five groups."""
MAX_OPEN_BYTES = QUEUE_BYTES
"""Decompressed bytes of all messages in validation."""
MAX_OPEN_BYTES_OF_NETWORK = MAX_OPEN_BYTES // 2
"""Bound for one network, whatever its identities: as much is left for the others."""
MAX_OPEN_BYTES_OF_PEER = MAX_BATCH_BYTES
"""Bound for one forwarder: one batch of maximum size."""


class BatchDecoder:
    """Decodes payloads, bounded in bytes for each forwarder, for each network and in total."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._one_at_a_time = FairLimiter(1)
        self._open_bytes: Counter[ShareKey] = Counter()
        """Bytes in validation for each network and each of its peers."""

    @contextmanager
    def reserve(self, by: ShareKey, num_bytes: int) -> Iterator[None]:
        """Reserve the declared size of a payload while its message is validated.

        `by` is the network and the peer that delivered it.

        Raises:
            Rejected: BUSY, the limit is reached; no peer is charged.
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
        envelope: SignedEnvelope,
        by: ShareKey,
        *,
        author: PeerId,
        context: ValidationContext,
        now_ms: int,
        delivered_by: PeerId | None,
    ) -> SignedBatch:
        """Return `open_payload` of the same arguments, run in a thread if it is large.

        The digests and weights of the groups are cached when this returns.

        Raises:
            Rejected: with the verdict table's reason.
        """

        def open_it() -> SignedBatch:
            signed = open_payload(
                envelope,
                author=author,
                context=context,
                now_ms=now_ms,
                delivered_by=delivered_by,
                parsed=parsed,
            )
            for group in signed.batch.groups:
                group_id(group)
                weight_of(group)
            return signed

        parsed, num_bytes = None, declared_size(envelope.payload)
        if num_bytes <= HEAVY_BYTES:
            return open_it()
        if num_bytes <= PARSED_BYTES:
            parsed = parse_payload(envelope, author=author, context=context)
            if is_light(parsed, LIGHT_S):
                return open_it()
        return await self.in_thread(open_it, by)

    async def in_thread(self, open_it: Callable[[], T], by: ShareKey) -> T:
        """Run `open_it` in a thread, one call at a time; return its result or raise its error."""
        async with self._one_at_a_time.slot(by):
            return await self._in_thread(open_it)

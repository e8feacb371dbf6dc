"""Serves `/shoal/rollouts/1`: batches on disk, to any peer, within quotas.

    request ─▶ quotas ─▶ decode ─▶ index (memory) ─▶ store (disk) ─▶ answer

A client over its quota gets a retry time. One whose request does not parse is reset and loses
reputation. Bytes are counted by identity and by network, so each network gets its share however
many identities request as much as they can (`AdaptiveRateLimit`). `SERVE_LIMITS` bounds concurrent
requests and the time for a slow reader.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import trio

from shoal_base.bounded import FEW, MANY, BoundedDict
from shoal_base.ranges import Ranged
from shoal_p2p.fair.buckets import AdaptiveRateLimit, KeyedBuckets, Rate
from shoal_p2p.fetch.batch_index import BatchIndex, ShelvedBatch
from shoal_p2p.fetch.stats import FetchStats
from shoal_p2p.intake.ledger import Equivocation
from shoal_p2p.net.request import RequestLimits
from shoal_p2p.reputation.scoring import Report
from shoal_p2p.store.store import Store
from shoal_p2p.store.types import StoreError
from shoal_wire.codec import PayloadError, decode_batch
from shoal_wire.digests import batch_id as id_of_envelope
from shoal_wire.envelope import EnvelopeError, open_envelope
from shoal_wire.limits import MAX_BATCH_BYTES, MAX_CHUNK_BYTES, MAX_RETRY_MS, WHOLE_MESSAGE_BYTES
from shoal_wire.rollout_codec import RolloutProtocolError, decode_query, encode_answer
from shoal_wire.rollout_messages import (
    Answer,
    BatchRef,
    BatchRefusalReason,
    Chunk,
    ChunkQuery,
    Envelopes,
    Listing,
    Query,
    RecentQuery,
    Refusal,
    SinceQuery,
    WholeQuery,
)
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason, verdict

SERVE_LIMITS = RequestLimits(
    read_deadline_s=5.0,
    handle_deadline_s=10.0,
    write_deadline_s=15.0,
    max_concurrent=16,
    max_concurrent_per_peer=3,
)
"""At most 16 answers of 1 MiB in memory, each read within 15 s or reset."""

_LOADED_SECONDS = 0.25
"""Minimum retry time, in seconds, for a peer refused because of other peers' requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLimits(Ranged):
    """Rate limits for one peer, and for all networks together."""

    requests_per_peer: Annotated[Rate, "requests"] = Rate(burst=64, per_second=16)
    bytes_per_peer: Annotated[Rate, "bytes"] = Rate(burst=16 << 20, per_second=4 << 20)
    refusals_per_peer: Annotated[Rate, "refusals"] = Rate(burst=32, per_second=1)
    """Postponed requests after which more of them count as a flood."""
    bytes_of_all: Annotated[Rate, "bytes"] = Rate(burst=64 << 20, per_second=16 << 20)
    """Rate for all networks: if n request as much as they can, each gets 1/(n + 1), whatever the
    number of its identities. So one alone gets twice a peer's rate (docs/threats.md, Quotas), and
    next to two of them a peer still gets its full rate."""


class RolloutServer:
    """Answers requests for batches."""

    def __init__(
        self,
        *,
        shelf: BatchIndex,
        store: Store,
        is_pending: Callable[[BatchId], bool],
        report: Report,
        stats: FetchStats,
        wall_ms: Callable[[], int],
        network_of: Callable[[PeerId], str],
        limits: ServeLimits | None = None,
    ) -> None:
        """`network_of` returns the IP network of a peer's connection (`Host.source_of`)."""
        limits = limits or ServeLimits()
        self._shelf = shelf
        self._store = store
        self._is_pending = is_pending
        self._report = report
        self._stats = stats
        self._wall_ms = wall_ms
        self._network_of = network_of
        self._requests: KeyedBuckets[PeerId] = KeyedBuckets(limits.requests_per_peer)
        self._bytes: KeyedBuckets[PeerId] = KeyedBuckets(limits.bytes_per_peer)
        self._served_ids: BoundedDict[BatchId, None] = BoundedDict()
        self._served = trio.Event()
        self._double: BoundedDict[PeerId, dict[BatchId, tuple[BatchRef, bytes]]] = BoundedDict(FEW)
        """The two batches of one number, by their signer: at most 8 MiB."""
        self._patience: KeyedBuckets[PeerId] = KeyedBuckets(limits.refusals_per_peer)
        self._shared = AdaptiveRateLimit(limits.bytes_of_all, trio.current_time())

    async def answer(self, peer_id: PeerId, raw: bytes) -> bytes:
        """Answer one request.

        Raises:
            RolloutProtocolError: not a valid request; the stream is to be reset.
        """
        now = trio.current_time()
        # Before decoding, so that a flood of invalid requests costs as little as any other.
        if (wait_s := self._wait_s(peer_id, now)) > 0:
            return self._postpone(peer_id, wait_s, now)
        self._requests.get(peer_id, now).take(1, now)
        network = self._network_of(peer_id)
        if (wait_s := self._shared.wait_s(network, now)) > 0:
            # Its network, or all networks together, used up the rate. It is not charged for that,
            # but the request counts.
            self._stats.refused["over_quota"] += 1
            return encode_answer(_busy(max(_LOADED_SECONDS, wait_s)))
        try:
            query = decode_query(raw)
        except RolloutProtocolError:
            self._stats.refused["malformed_request"] += 1
            self._report(peer_id, peer_id, verdict(Reason.BAD_REQUEST))
            raise
        found = await self._find(query, peer_id)
        self._count(query, found)
        encoded = encode_answer(found)
        self._bytes.get(peer_id, now).take(len(encoded), now)
        self._shared.take(network, len(encoded), now)
        return encoded

    def _postpone(self, peer_id: PeerId, wait_s: float, now: float) -> bytes:
        """Answer with a retry time. A client that often does not wait for it is flooding."""
        self._stats.refused["over_quota"] += 1
        if not self._patience.get(peer_id, now).try_take(1, now):
            self._report(peer_id, peer_id, verdict(Reason.BAD_REQUEST))
            raise RolloutProtocolError("request flood")
        return encode_answer(_busy(wait_s))

    def _wait_s(self, peer_id: PeerId, now: float) -> float:
        """Return how long this peer is over its quotas; bytes are charged once known."""
        return max(
            self._requests.get(peer_id, now).wait_s(1, now),
            self._bytes.get(peer_id, now).wait_s(1, now),
        )

    def _count(self, query: Query, found: Answer) -> None:
        if isinstance(found, Refusal):
            self._stats.refused[found.reason.value] += 1
            return
        self._stats.served[_KINDS[type(query)]] += 1
        if isinstance(found, Chunk):
            self._stats.bytes_out += len(found.data)
        elif isinstance(found, Envelopes):
            self._stats.bytes_out += sum(map(len, found.envelopes))

    async def show_to_signer(
        self, pair: Equivocation, second: bytes, *, unwritten: bytes | None = None
    ) -> None:
        """Store the latest two batches that a signer gave one number, and list them to it alone.

        `unwritten` is the first one's envelope if it is not on disk yet.

        So each of two nodes with one key detects the other. Announcements, and batches too large
        for one reply, are not stored.
        """
        first, held = unwritten, self._shelf.get(pair.first)
        if first is None and held is not None and held.ref.num_bytes <= WHOLE_MESSAGE_BYTES:
            first = await self._part(pair.first, 0, held.ref.num_bytes)
        shown = {}
        for envelope in (first, second):
            if envelope is not None and (ref := _ref_of(envelope)) is not None:
                shown[ref.batch_id] = (ref, envelope)
        self._double.put(pair.publisher, shown)

    async def _find(self, query: Query, asker: PeerId) -> Answer:
        match query:
            case RecentQuery():
                return self._recent(query, asker)
            case SinceQuery():
                return self._since(query, asker)
            case WholeQuery():
                return await self._whole(query, asker)
            case ChunkQuery():
                return await self._chunk(query)

    def _recent(self, query: RecentQuery, asker: PeerId) -> Listing | Refusal:
        if query.before and self._shelf.get(query.before) is None:
            return Refusal(reason=BatchRefusalReason.NOT_HELD)
        shards, left = frozenset(query.shards), query.max_bytes
        found: list[ShelvedBatch] = []
        candidates = self._shelf.recent(
            now_ms=self._wall_ms(),
            max_age_seconds=query.max_age_seconds,
            before=query.before or None,
        )
        for held in itertools.islice(candidates, MANY):
            if shards.isdisjoint(held.shards) or held.ref.publisher == asker:
                continue
            left -= held.ref.num_bytes
            if left < 0 or len(found) == query.max_batches:
                break
            found.append(held)
        return Listing(batches=tuple(held.ref for held in found))

    def _since(self, query: SinceQuery, asker: PeerId) -> Listing:
        held = self._shelf.since(query.publisher, query.after_sequence, now_ms=self._wall_ms())
        shards = frozenset(query.shards)
        refs = [one.ref for one in held if not shards or not shards.isdisjoint(one.shards)]
        if query.publisher == asker:
            shown = (ref for ref, _ in self._double.get(asker, {}).values())
            refs += (ref for ref in shown if ref.sequence > query.after_sequence)
            refs.sort(key=lambda ref: ref.sequence)
        return Listing(batches=tuple(refs[: query.max_batches]))

    async def _whole(self, query: WholeQuery, asker: PeerId) -> Envelopes:
        envelopes: list[bytes] = []
        left = MAX_CHUNK_BYTES
        for batch_id in dict.fromkeys(query.batch_ids):
            _, envelope = self._double.get(asker, {}).get(batch_id, (None, None))
            held = self._shelf.get(batch_id)
            if envelope is None and held is not None and held.ref.num_bytes <= left:
                envelope = await self._part(batch_id, 0, held.ref.num_bytes)
            if envelope is not None and len(envelope) <= left:
                left -= len(envelope)
                envelopes.append(envelope)
        return Envelopes(envelopes=tuple(envelopes))

    async def _chunk(self, query: ChunkQuery) -> Chunk | Refusal:
        held = self._shelf.get(query.batch_id)
        if held is None:
            pending = self._is_pending(query.batch_id)
            return Refusal(
                reason=BatchRefusalReason.PENDING if pending else BatchRefusalReason.NOT_HELD
            )
        length = max(0, min(query.length, held.ref.num_bytes - query.offset))
        data = await self._part(query.batch_id, query.offset, length)
        if data is None or len(data) != length:
            return Refusal(reason=BatchRefusalReason.NOT_HELD)
        return Chunk(num_bytes=held.ref.num_bytes, data=data)

    def on_sent(self, _peer_id: PeerId, raw: bytes) -> None:
        """Record that a reply has been written: it may be the last piece of a batch."""
        query = decode_query(raw)
        if not isinstance(query, ChunkQuery):
            return
        held = self._shelf.get(query.batch_id)
        if held is not None and query.offset + query.length >= held.ref.num_bytes:
            self._record_served(query.batch_id)

    async def wait_until_served(self, batch_id: BatchId) -> None:
        """Wait until a peer was sent the last piece of a batch."""
        while batch_id not in self._served_ids:
            self._served = trio.Event()
            await self._served.wait()

    def _record_served(self, batch_id: BatchId) -> None:
        self._served_ids.setdefault(batch_id, None)
        self._served.set()

    async def _part(self, batch_id: BatchId, offset: int, length: int) -> bytes | None:
        try:
            data = await self._store.envelope_part(batch_id, offset, length)
        except StoreError:
            return None
        if data is None:
            self._shelf.remove(batch_id)
        return data


_KINDS: dict[type[Query], str] = {
    RecentQuery: "recent",
    SinceQuery: "since",
    WholeQuery: "whole",
    ChunkQuery: "chunk",
}


def _ref_of(envelope: bytes) -> BatchRef | None:
    """Return the reference of a batch that fits into one reply; None for anything else."""
    if len(envelope) > WHOLE_MESSAGE_BYTES:
        return None
    try:
        opened = open_envelope(envelope)
        batch = decode_batch(opened.payload, max_bytes=MAX_BATCH_BYTES)
    except (EnvelopeError, PayloadError):
        return None
    return BatchRef(
        batch_id=id_of_envelope(envelope),
        publisher=opened.signer,
        sequence=batch.sequence,
        num_bytes=len(envelope),
        num_groups=len(batch.groups),
    )


def _busy(wait_s: float) -> Refusal:
    retry_ms = min(MAX_RETRY_MS, math.ceil(1000 * wait_s))
    return Refusal(reason=BatchRefusalReason.BUSY, retry_after_ms=retry_ms)

"""Pulls one batch by its digest, in chunks, from the peers that have it.

    candidate ─▶ chunk ─▶ chunk ─▶ … ─▶ digest ─▶ the envelope
        │ stalls, refuses, errs: the next candidate continues where this one stopped

If chunks of several peers do not match the digest, it is unknown which of them was wrong. Then the
batch is pulled again, completely from one peer at a time, which is responsible for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import trio

from shoal_base.ranges import Range, Ranged, Seconds
from shoal_p2p.fetch.client import NoAnswerError, RolloutClient
from shoal_wire.digests import batch_id as id_of_envelope
from shoal_wire.limits import MAX_CHUNK_BYTES
from shoal_wire.rollout_messages import BatchRefusalReason, Chunk, ChunkQuery
from shoal_wire.types import BatchId, PeerId
from shoal_wire.verdict import Reason

Candidates = Callable[[], Sequence[PeerId]]
"""The peers to ask now, the most likely first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullLimits(Ranged):
    """Bounds on one pull: size of a piece, time, and retries."""

    chunk_bytes: Annotated[int, Range("bytes", 1, MAX_CHUNK_BYTES)] = MAX_CHUNK_BYTES // 2
    total_seconds: Seconds = 120.0
    first_pause_seconds: Seconds = 0.1
    """Pause after a round in which no peer had it, in seconds; doubles with each round."""
    max_pause_seconds: Seconds = 4.0
    idle_rounds: Annotated[int, Range("rounds", 1, 1000)] = 7
    """Consecutive rounds without a byte after which the pull is abandoned: about 9 s. Twice as
    many, about 40 s, if a peer reports that it is busy or still pulling the batch itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """An envelope with the requested digest."""

    envelope: bytes
    provider: PeerId
    """The peer that sent the last chunk."""


class UnavailableError(Exception):
    """No peer sent the batch in time."""

    def __init__(self, batch_id: BatchId, denied: frozenset[PeerId]) -> None:
        super().__init__(batch_id.hex()[:12])
        self.denied = denied
        """Peers that answered that they do not hold it."""


@dataclass(slots=True)
class _Progress:
    batch_id: BatchId
    num_bytes: int
    data: bytearray = field(default_factory=bytearray)
    sources: set[PeerId] = field(default_factory=set)
    excluded: set[PeerId] = field(default_factory=set)
    denied: set[PeerId] = field(default_factory=set)
    alone: bool = False
    """True to pull from one peer at a time."""
    waiting: bool = False
    """True if a peer reported in this round that it has or will have it: not an idle round."""

    def restart(self) -> None:
        self.data.clear()
        self.sources.clear()


class BatchPull:
    """Pulls batches; has no state between pulls."""

    def __init__(self, asker: RolloutClient, limits: PullLimits | None = None) -> None:
        self._asker = asker
        self._limits = limits or PullLimits()

    async def pull(self, batch_id: BatchId, num_bytes: int, candidates: Candidates) -> Pulled:
        """Return the envelope of `num_bytes` bytes whose digest is `batch_id`.

        Raises:
            UnavailableError: no peer sent it within the limits.
        """
        progress = _Progress(batch_id, num_bytes)
        with trio.move_on_after(self._limits.total_seconds):
            pulled = await self._rounds(progress, candidates)
            if pulled is not None:
                return pulled
        raise UnavailableError(batch_id, frozenset(progress.denied))

    async def _rounds(self, progress: _Progress, candidates: Candidates) -> Pulled | None:
        limits = self._limits
        idle, waited, pause = 0, 0, limits.first_pause_seconds
        while idle < limits.idle_rounds and waited < 2 * limits.idle_rounds:
            had, progress.waiting = len(progress.data), False
            for peer_id in candidates():
                if peer_id in progress.excluded or not self._asker.is_usable(peer_id):
                    progress.waiting |= self._asker.busy_s(peer_id) > 0
                    continue
                pulled = await self._from(peer_id, progress)
                if pulled is not None:
                    return pulled
            if len(progress.data) > had:
                idle = waited = 0
                continue
            # If every peer denies having it, that will hardly change.
            sure = progress.denied >= set(candidates())
            idle += 0 if progress.waiting else 1 + sure
            waited += 1
            await trio.sleep(pause)
            pause = min(2 * pause, limits.max_pause_seconds)
        return None

    async def _from(self, peer_id: PeerId, progress: _Progress) -> Pulled | None:
        """Pull as many chunks as one peer sends."""
        if progress.alone:
            progress.restart()
        try:
            while len(progress.data) < progress.num_bytes:
                if not await self._chunk(peer_id, progress):
                    return None
        except NoAnswerError as error:
            if error.cause == BatchRefusalReason.NOT_HELD:
                progress.denied.add(peer_id)
            progress.waiting |= error.cause in (BatchRefusalReason.BUSY, BatchRefusalReason.PENDING)
            return None
        if id_of_envelope(bytes(progress.data)) == progress.batch_id:
            return Pulled(envelope=bytes(progress.data), provider=peer_id)
        if progress.sources == {peer_id}:
            self._asker.offend(peer_id, Reason.WRONG_OBJECT)
            progress.excluded.add(peer_id)
        progress.alone = True
        progress.restart()
        return None

    async def _chunk(self, peer_id: PeerId, progress: _Progress) -> bool:
        """Add one chunk; return False if this peer cannot send the rest of this batch."""
        offset = len(progress.data)
        query = ChunkQuery(
            batch_id=progress.batch_id,
            offset=offset,
            length=min(self._limits.chunk_bytes, progress.num_bytes - offset),
        )
        chunk = await self._asker.ask(peer_id, query, Chunk)
        if chunk.num_bytes != progress.num_bytes:
            # The peer that reported the size may be the wrong one: not charged.
            progress.excluded.add(peer_id)
            return False
        if len(chunk.data) != query.length:
            self._asker.offend(peer_id, Reason.MALFORMED_ANSWER)
            progress.excluded.add(peer_id)
            return False
        progress.data += chunk.data
        progress.sources.add(peer_id)
        return True

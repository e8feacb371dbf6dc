"""Stores this node's batches on disk, acknowledges them, and sends them when there are peers.

    publish ─▶ sequence, seal, store (durable) ─▶ acknowledge ─▶ [wait for a peer] ─▶ gossip ─▶ sent

Batches are sent at a rate below the quota that peers allow a publisher, so an honest node never
exceeds it. A faster trainer has to wait before its batch gets a number: a number that is never sent
is a gap, which every neighbour would request. While no peer is connected, the oldest batches are
dropped. While the swarm is behind, a node sends less (`publish_backoff`), and its trainer waits
too.

A batch that is too large for gossip is announced by its digest; peers pull it (`fetch.server`).
Batches are sent in order, and wait while no peer is subscribed. After a restart the unsent ones are
sent as the same bytes under the same sequence number, so receivers see a duplicate.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import trio

from shoal_base.waits import RETRY_S
from shoal_ipc import messages as m
from shoal_p2p.fair.buckets import Rate, TokenBucket
from shoal_p2p.intake.ledger import LedgerLimits
from shoal_p2p.intake.validation import Rejected, reopen_batch
from shoal_p2p.net.identity import Identity
from shoal_p2p.rollouts.own_numbers import OwnNumbers
from shoal_p2p.rollouts.publish_backoff import LATE_S, PublishBackoff
from shoal_p2p.store.store import OwnBatch, Store, StoreError
from shoal_wire.announcement import Announcement, encode_announcement
from shoal_wire.codec import batch_to_bytes, compress
from shoal_wire.digests import batch_id
from shoal_wire.envelope import seal
from shoal_wire.limits import (
    ANNOUNCEMENT_PAYLOAD_TYPE,
    MAX_COMPLETIONS_PER_BATCH,
    MAX_GROUPS_PER_BATCH,
)
from shoal_wire.manifest import Manifest
from shoal_wire.types import BatchId, RolloutBatch, RolloutGroup, SignedBatch

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

MAX_UNSENT = 512
"""Most batches that wait for a peer; beyond it the oldest is dropped and counted."""

MAX_PACED_GROUPS = 128
"""Most groups that wait to be sent while peers are connected: two seconds at the allowed rate.
Further groups wait in the trainer, which keeps the newest. With 1,024, eight nodes at twice the
allowed rate had a p99 of 17.7 s with known questions and 22 s with new ones, all of it in their own
outboxes; with 128 it was 3.0 and 4.1 s, and none was lost."""

_PACE_SHARE, _BURST_SHARE = 0.9, 0.5
"""Shares of a quota: peers start counting at other times than this node."""
ANNOUNCED_PER_SECOND = Rate(burst=16, per_second=2)
ANNOUNCED_BYTES_PER_SECOND = Rate(burst=16 << 20, per_second=900_000)
"""Rate of announced bytes, below what peers pull from one publisher (`QueueLimits`)."""


class OversizeBatchError(Exception):
    """A batch that the swarm's rules would reject; the text is one line."""


class OutboxFullError(Exception):
    """Too many batches wait to be sent; the text is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """An own batch that is on disk."""

    sequence: int
    batch_id: BatchId
    signed: SignedBatch | None
    """The sealed batch; None for a resend of an accepted one."""

    @property
    def is_new(self) -> bool:
        """False for a resend."""
        return self.signed is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A batch on disk that was not sent."""

    sequence: int
    created_ms: int
    message: bytes
    """The gossiped bytes: the batch's envelope, or an announcement of it."""
    announces: BatchId | None
    """The batch's id if it is announced; otherwise None."""
    num_groups: int
    num_bytes: int
    """Size of the batch's envelope."""
    key: int
    """Topic key of its families."""


class OutboxGossip(Protocol):
    """The part of gossip that an outbox uses (`shoal_p2p.gossip.interface.Gossip`)."""

    async def publish(self, topic: str, data: bytes) -> int:
        """Queue a message for the peers of a topic and return their number."""

    def lag_s(self, sent_since: float) -> float | None:
        """Return the delivery lag, in seconds; None if unknown."""


class Outbox:
    """Stores, signs and publishes this node's batches."""

    def __init__(
        self,
        *,
        manifest: Manifest,
        identity: Identity,
        store: Store,
        gossip: OutboxGossip,
        topic: Callable[[int], str] | None = None,
        wall_ms: Callable[[], int],
        numbers: OwnNumbers | None = None,
    ) -> None:
        """`topic` returns the current topic for batches of a topic key; None is that of a swarm
        without adaptive shards. `numbers` has those of batches from before this start."""
        self._manifest = manifest
        self._me = identity.peer_id
        self._topic = topic or (lambda key: manifest.topic(manifest.path(self._me, key)[0]))
        self._numbers = numbers or OwnNumbers(manifest)
        self._signer = identity
        self._store = store
        self._gossip = gossip
        self._wall_ms = wall_ms
        self._backoff = PublishBackoff(random.Random(identity.peer_id))
        self._unsent: deque[_Waiting] = deque()
        self._pace = new_pace(trio.current_time())
        self._reached: set[int] = set()
        """Topic keys for which a peer was subscribed when the last batch was sent."""
        self._unreached: set[int] = set()
        """Topic keys for which none was."""
        self._announced = TokenBucket(ANNOUNCED_PER_SECOND, -math.inf)
        self._announced_bytes = TokenBucket(ANNOUNCED_BYTES_PER_SECOND, -math.inf)
        self._wake = trio.Event()
        self._progress = trio.Event()
        self.num_batches_sent = 0
        self.num_batches_announced = 0
        """Sent batches that were too large for gossip."""
        self.announced: deque[BatchId] = deque(maxlen=int(ANNOUNCED_PER_SECOND.burst))
        """The latest of them."""
        self.num_batches_expired = 0
        self.num_batches_postponed = 0
        """Number of times that the trainer had to wait because it is faster than the quota."""

    @property
    def late_s(self) -> float:
        """Delivery lag of the swarm, in seconds, while own batches wait for it; otherwise 0."""
        return self._backoff.late_s if self._backoff.is_slowed else 0.0

    @property
    def num_unsent(self) -> int:
        """Batches that wait to be sent."""
        return len(self._unsent)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send batches until cancelled, first those that an earlier run left unsent."""
        await self._take_up()
        task_status.started()
        while True:
            if not self._unsent:
                await self._wake.wait()
                self._wake = trio.Event()
                continue
            await self._send_one()

    async def drained(self) -> None:
        """Wait until all batches are sent that a peer listens to, or all while there is no peer."""
        while self._waiting_for_turn() if self._reached else self._unsent:
            self._progress = trio.Event()
            await self._progress.wait()

    async def accept(self, request: m.Publish, *, max_groups: int | None = None) -> Accepted:
        """Seal and store a batch; on return it is on disk and will be sent.

        At most `max_groups` may wait, this batch included, while peers are subscribed.

        Raises:
            StoreError: it is not on disk, and not accepted.
            OversizeBatchError: peers would reject it.
            OutboxFullError: it has no number yet; try again later.
        """
        sealed: list[SignedBatch] = []
        key = self._manifest.key_of(request.groups[0].task)
        full = self._full(len(request.groups), max_groups)

        def make_envelope(sequence: int, _latest: int) -> bytes:
            if full:
                # Only here, since a resend of an accepted batch is answered in any case.
                raise OutboxFullError(full)
            # The latest number may be of a topic that receivers of this one do not hear.
            sealed.append(self.seal(request, sequence, self._numbers.latest(key)))
            return sealed[0].envelope

        try:
            own = await self._store.reserve_own(request.client_key, make_envelope)
        except OutboxFullError:
            self.num_batches_postponed += 1
            raise
        signed = sealed[0] if own.is_new else None
        if signed is not None:
            self._numbers.record(key, own.sequence)
            self._unsent.append(self._waiting(signed))
            await self._bound()
            self._wake.set()
        return Accepted(sequence=own.sequence, batch_id=own.batch_id, signed=signed)

    def _full(self, num_groups: int, max_groups: int | None) -> str:
        """Return why no batch is accepted now, as a sentence; empty if one is."""
        now = trio.current_time()
        self._backoff.note(self._gossip.lag_s(self._backoff.judged_since), now)
        if not self._reached:
            return ""
        waiting = self._waiting_for_turn()
        if self._backoff.is_slowed and (waiting or not self._backoff.is_soon(now)):
            return (
                f"the swarm is {self._backoff.late_s:.0f} s behind, and this node shares less"
                " until it has caught up"
            )
        if not waiting:
            return ""
        num_waiting = sum(own.num_groups for own in waiting)
        too_many = max_groups is not None and num_waiting + num_groups > max_groups
        if not too_many and len(waiting) < MAX_UNSENT:
            return ""
        return (
            f"{len(waiting)} batches wait to go out: peers take"
            f" {LedgerLimits().groups_per_second:.0f} groups a second of one node"
        )

    def _waiting_for_turn(self) -> list[_Waiting]:
        """Return the batches that wait for their turn, and not for a peer of their topic."""
        return [own for own in self._unsent if own.key not in self._unreached]

    async def _take_up(self) -> None:
        """Queue the batches that an earlier run left unsent; those of another swarm are dropped."""
        for own in await self._store.unsent():
            signed = self._reopen(own)
            if signed is not None:
                self._unsent.append(self._waiting(signed))
                self._numbers.record(self._unsent[-1].key, own.sequence)
            else:
                self.num_batches_expired += 1
                await self._done_with(own.sequence)

    def _reopen(self, own: OwnBatch) -> SignedBatch | None:
        """Return a stored batch if it is undamaged and of this swarm."""
        try:
            signed = reopen_batch(
                own.envelope or b"", max_bytes=self._manifest.rules.max_batch_bytes
            )
        except Rejected as rejected:
            log.warning("an unsent batch is damaged (%s): dropped", rejected.reason)
            return None
        return signed if signed.batch.swarm_digest == self._manifest.digest else None

    def _waiting(self, signed: SignedBatch) -> _Waiting:
        batch, num_bytes = signed.batch, len(signed.envelope)
        too_big = num_bytes > self._manifest.rules.max_whole_bytes
        return _Waiting(
            sequence=batch.sequence,
            created_ms=batch.created_ms,
            message=self._announce(signed) if too_big else signed.envelope,
            announces=signed.batch_id if too_big else None,
            num_groups=len(batch.groups),
            num_bytes=num_bytes,
            key=self._manifest.key_of(batch.groups[0].task),
        )

    def _announce(self, signed: SignedBatch) -> bytes:
        batch = signed.batch
        announcement = Announcement(
            swarm_digest=batch.swarm_digest,
            sequence=batch.sequence,
            previous_sequence=batch.previous_sequence,
            created_ms=batch.created_ms,
            num_groups=len(batch.groups),
            batch_id=signed.batch_id,
            num_bytes=len(signed.envelope),
            expires_ms=batch.created_ms + self._manifest.rules.max_age_seconds * 1000,
        )
        return seal(
            encode_announcement(announcement),
            public_key=self._signer.public_key_bytes,
            sign=self._signer.sign,
            payload_type=ANNOUNCEMENT_PAYLOAD_TYPE,
        )

    def seal(self, request: m.Publish, sequence: int, previous: int) -> SignedBatch:
        """Return a batch under that number, signed; raises OversizeBatchError."""
        batch = RolloutBatch(
            swarm_digest=self._manifest.digest,
            sequence=sequence,
            round=request.round,
            created_ms=self._wall_ms(),
            policy=request.policy,
            sampling=request.sampling,
            groups=request.groups,
            previous_sequence=previous,
        )
        content = batch_to_bytes(batch)
        num_completions = sum(len(group.completions) for group in batch.groups)
        self._check_unpacks(len(content), len(batch.groups), num_completions)
        envelope = seal(
            compress(content), public_key=self._signer.public_key_bytes, sign=self._signer.sign
        )
        return SignedBatch(
            batch_id=batch_id(envelope), publisher=self._me, batch=batch, envelope=envelope
        )

    def _check_unpacks(self, num_bytes: int, num_groups: int, num_completions: int) -> None:
        """Refuse a batch from the socket that `decode_batch` would refuse at peers."""
        max_bytes = self._manifest.rules.max_batch_bytes
        if num_bytes > max_bytes:
            # Decompressed: repetitive text is short on the wire only.
            fault = f"it has over {max_bytes} bytes, unpacked"
        elif num_groups > MAX_GROUPS_PER_BATCH:
            fault = f"it has over {MAX_GROUPS_PER_BATCH} groups"
        elif num_completions > MAX_COMPLETIONS_PER_BATCH:
            fault = f"it has over {MAX_COMPLETIONS_PER_BATCH} completions"
        else:
            return
        raise OversizeBatchError(f"peers would reject the batch: {fault}")

    async def _send_one(self) -> None:
        """Send the oldest batch of a topic that a peer listens to, or wait a moment."""
        oldest: dict[int, _Waiting] = {}
        for own in self._unsent:
            oldest.setdefault(own.key, own)
        for own in oldest.values():
            if await self._send(own):
                return
        with trio.move_on_after(RETRY_S):
            await self._wake.wait()
            self._wake = trio.Event()

    async def _send(self, own: _Waiting) -> bool:
        """Send a batch when it may be; return False if no peer listens to its topic."""
        pace, now = self._pace, trio.current_time()
        self._backoff.note(self._gossip.lag_s(self._backoff.judged_since), now)
        await trio.sleep(max(wait_s_of(pace, own.num_groups, now), self._backoff.wait_s(now)))
        if own not in self._unsent:
            return True  # dropped in the meantime, by `_bound`
        if self._wall_ms() - own.created_ms > self._manifest.rules.max_age_seconds * 1000:
            self.num_batches_expired += 1
        elif own.announces is not None and (wait_s := self._announcing_wait_s(own)) > 0:
            await trio.sleep(min(wait_s, RETRY_S))
            return True
        elif await self._gossip.publish(self._topic(own.key), own.message) > 0:
            self.num_batches_sent += 1
            self._reached.add(own.key)
            self._unreached.discard(own.key)
            pace.take(own.num_groups, trio.current_time())
            self._backoff.sent(trio.current_time())
            if own.announces is not None:
                self.num_batches_announced += 1
                self.announced.append(own.announces)
                self._announced.take(1, trio.current_time())
                self._announced_bytes.take(own.num_bytes, trio.current_time())
        else:
            self._reached.discard(own.key)
            self._unreached.add(own.key)
            return False
        # Recorded before it leaves the queue: a caller of `drained` may stop the node at once.
        await self._done_with(own.sequence)
        # It may have been dropped in the meantime, by `_bound`.
        with contextlib.suppress(ValueError):
            self._unsent.remove(own)
        self._progress.set()
        return True

    def _announcing_wait_s(self, own: _Waiting) -> float:
        now = trio.current_time()
        return max(self._announced.wait_s(1, now), self._announced_bytes.wait_s(own.num_bytes, now))

    async def _bound(self) -> None:
        while len(self._unsent) > MAX_UNSENT:
            dropped = self._unsent.popleft()
            self.num_batches_expired += 1
            await self._done_with(dropped.sequence)

    async def _done_with(self, sequence: int) -> None:
        try:
            await self._store.mark_sent(sequence)
        except StoreError as error:
            # After a restart it is sent once more, as a duplicate.
            log.log(error.log_level, "batch %d is not marked as sent: %s", sequence, error)


def split_by_topic(request: m.Publish, manifest: Manifest) -> list[m.Publish]:
    """Return the batches of a request, one for each topic key of its groups.

    A repeated request is split in the same way, so each batch has the same client key again.
    """
    groups: dict[int, list[RolloutGroup]] = {}
    for group in request.groups:
        groups.setdefault(manifest.key_of(group.task), []).append(group)
    if len(groups) == 1:
        return [request]
    return [
        replace(request, client_key=request.client_key + key.to_bytes(6, "big"), groups=tuple(some))
        for key, some in groups.items()
    ]


def wait_s_of(pace: TokenBucket, num_groups: int, now: float) -> float:
    """Return the seconds until a batch may be sent.

    It waits until `pace` has tokens for it, so that half of the quota is left at every peer, which
    a restart may begin with. A batch larger than the burst uses all of both.
    """
    wait_s = pace.wait_s(num_groups, now)
    is_whole = num_groups > _BURST_SHARE * LedgerLimits().burst_groups
    # Also at a peer that received the previous batch late.
    return wait_s + LATE_S if is_whole else wait_s


def new_pace(now: float) -> TokenBucket:
    """Return the rate limit for sent groups: below any peer's quota, whenever that began.

    It begins empty, since the process before a restart may have just used it.
    """
    quota = LedgerLimits()
    pace = Rate(
        burst=_BURST_SHARE * quota.burst_groups,
        per_second=_PACE_SHARE * quota.groups_per_second,
    )
    bucket = TokenBucket(pace, now)
    bucket.take(pace.burst, now)
    return bucket

"""Keeps buffer (memory) and store (disk) consistent.

The buffer decides what is kept, and the store persists it. A group is consumed on disk before it is
consumed in memory, so after a crash no group returns whose effect is in a checkpoint.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.ranges import Bytes, Ranged, Seconds
from shoal_base.waits import LATELY_S, MINUTE_S
from shoal_ipc.answers.node import Buffer
from shoal_ipc.messages import GroupOutcome
from shoal_p2p.buffer.pool import source_of
from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.buffer.types import BufferEntry, InsertOutcome
from shoal_p2p.events import (
    BatchReceived,
    BatchStored,
    BatchWithdrawn,
    EventSink,
    GroupLeased,
    GroupsStored,
    GroupVerified,
    RoundTrained,
)
from shoal_p2p.intake.ledger import Equivocation, PublisherLedger
from shoal_p2p.intake.validation import Rejected, weight_of
from shoal_p2p.reputation.publisher_weights import PublisherWeights
from shoal_p2p.reputation.reputation import Reputation
from shoal_p2p.rollouts.contributions import account
from shoal_p2p.rollouts.duplicate_index import MAX_COPIES, Copy, DuplicateIndex
from shoal_p2p.rollouts.groups import published_groups
from shoal_p2p.rollouts.reopening import Reopener
from shoal_p2p.rollouts.restoring import Restoring
from shoal_p2p.store.store import Deliverer, Store, StoredBatch, StoreError
from shoal_wire import digests
from shoal_wire.limits import WHOLE_MESSAGE_BYTES
from shoal_wire.manifest import Manifest
from shoal_wire.types import (
    BatchId,
    GroupId,
    PeerId,
    PublishedGroup,
    RolloutGroup,
    SignedBatch,
)

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

GROUPS_A_STEP, COMPLETIONS_A_STEP = 64, 256
"""Most groups and completions inserted before other tasks run: about two milliseconds, most of it
for long completions, which are truncated for display."""
WRITTEN_AFTER_S = 0.5
"""Longest time, in seconds, until a buffered batch is written to disk. Batches share a transaction,
which took an eighth of a delivery's CPU. A killed node loses external batches of that time, which
the next start requests from peers."""
WRITTEN_BYTES = WHOLE_MESSAGE_BYTES
"""Bytes of unwritten envelopes beyond which they are written immediately, so that peers can pull
large batches from here without delay."""
_SWEEP_SECONDS = 5.0
_SERVED_MS = int(1000 * LATELY_S)
"""Time for which a batch stays on disk for peers that missed it, after this node needs it."""


def steps_of(groups: Sequence[RolloutGroup]) -> Iterator[list[RolloutGroup]]:
    """Split groups, in order, into chunks that are inserted into the buffer at once."""
    step: list[RolloutGroup] = []
    left = COMPLETIONS_A_STEP
    for group in groups:
        left -= len(group.completions)
        if step and (left < 0 or len(step) == GROUPS_A_STEP):
            yield step
            step, left = [], COMPLETIONS_A_STEP - len(group.completions)
        step.append(group)
    if step:
        yield step


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings(Ranged):
    """Bounds on external groups, and how they are sampled."""

    max_age_seconds: Seconds
    max_store_bytes: Bytes
    """Bound on external batches on disk, in bytes of their envelopes."""
    publisher_sampling: Literal["weighted", "uniform"] = "weighted"
    """The setting `publisher_sampling`."""


class RolloutPool:
    """The node's rollouts: own and external, ready, leased or consumed."""

    def __init__(
        self,
        *,
        buffer: ReplayBuffer,
        store: Store,
        me: PeerId,
        manifest: Manifest,
        settings: PoolSettings,
        reputation: Reputation | None = None,
        network_of: Callable[[PeerId], str] = str,
        events: EventSink | None = None,
    ) -> None:
        """`network_of` returns the network of a publisher (`MetNetworks.network_of`)."""
        self._buffer = buffer
        self._store = store
        self._me = me
        self._manifest = manifest
        self._settings = settings
        self._reputation = reputation
        self._network_of = network_of
        self._events = events or EventSink()
        self._withdrawn: BoundedDict[BatchId, None] = BoundedDict()
        self._reopener = Reopener(store.in_thread, max_bytes=manifest.rules.max_batch_bytes)
        self._copies = DuplicateIndex(2 * buffer.max_groups)
        self.restored = trio.Event()
        """Set once buffer and ledger are restored from disk."""
        self._unwritten: list[tuple[SignedBatch, Deliverer | None, int]] = []
        """Batches in the buffer that are not on disk yet, the deliverer of each, and the wall clock
        in milliseconds at its arrival."""
        self._unwritten_bytes = 0
        self._has_kept = trio.Event()
        """Set when there are unwritten batches."""
        self._turn_groups = self._turn_completions = 0
        """Inserted since other tasks last ran."""

    @property
    def buffer(self) -> ReplayBuffer:
        """The buffer, for views."""
        return self._buffer

    async def restore(self, ledger: PublisherLedger) -> None:
        """Restore buffer and ledger from disk; sets `restored` at the end."""
        await Restoring(
            store=self._store,
            buffer=self._buffer,
            ledger=ledger,
            reopener=self._reopener,
            take_back=self._take_back,
            me=self._me,
            swarm_digest=self._manifest.digest,
        ).run()
        self.restored.set()

    async def _take_back(self, signed: SignedBatch, stored: StoredBatch) -> None:
        """Insert a batch from disk with its original age and deliverer."""
        age = max(0.0, (self._store.wall_ms() - stored.received_ms) / 1000)
        received_at, own = trio.current_time() - age, signed.publisher == self._me
        groups = signed.batch.groups
        if await self._buffered(signed, groups, received_at, stored.deliverer, own=own):
            self._events.emit(
                BatchStored(signed=signed, received_ms=stored.received_ms, own=own, restored=True)
            )

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write batches to disk and drop expired groups, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_for_ever)
            task_status.started()
            await self._sweep_for_ever()

    async def _write_for_ever(self) -> None:
        while True:
            await self._has_kept.wait()
            await trio.sleep(WRITTEN_AFTER_S)
            self._has_kept = trio.Event()
            await self.write_all()

    async def _sweep_for_ever(self) -> None:
        next_prune = trio.current_time() + MINUTE_S
        while True:
            await trio.sleep(_SWEEP_SECONDS)
            self._buffer.expire(trio.current_time())
            await self._replace_removed()
            if trio.current_time() >= next_prune:
                next_prune = trio.current_time() + MINUTE_S
                await self._prune()

    async def keep_all(self, batches: Sequence[SignedBatch]) -> None:
        """Put validated batches into the buffer, in their order; they are written to disk soon.

        Writing them only spares a restart from an empty buffer, so on a full disk the groups are
        used from memory alone.
        """
        for signed in batches:
            groups, deliverer = signed.batch.groups, self._bringer(signed)
            self._events.emit(BatchReceived(publisher=signed.publisher, num_groups=len(groups)))
            if await self._buffered(signed, groups, trio.current_time(), deliverer):
                self._unwritten.append((signed, deliverer, self._store.wall_ms()))
                self._unwritten_bytes += len(signed.envelope)
        self._has_kept.set()
        if self._unwritten_bytes >= WRITTEN_BYTES:
            await self.write_all()

    def _bringer(self, signed: SignedBatch) -> Deliverer | None:
        """Return the peer that delivered a batch, with the network that its groups count for.

        That is the publisher's network: an honest forwarder is not responsible for the identities
        behind it, and these are not many networks.
        """
        if signed.delivered_by is None:
            return None
        return Deliverer(peer_id=signed.delivered_by, network=self._network_of(signed.publisher))

    async def _buffered(
        self,
        signed: SignedBatch,
        groups: Sequence[RolloutGroup],
        received_at: float,
        deliverer: Deliverer | None,
        *,
        own: bool = False,
    ) -> bool:
        """Insert groups of a batch in chunks; False if it was withdrawn in the meantime."""
        share = len(signed.envelope) // max(1, len(signed.batch.groups))
        for step in steps_of(groups):
            await self._yield_before(step)
            if signed.batch_id in self._withdrawn:
                self._discard(signed.publisher, signed.batch_id)
                return False
            self._take_in(
                published_groups(signed, step),
                share * len(step),
                received_at,
                own=own,
                deliverer=deliverer,
            )
        return True

    async def _yield_before(self, step: Sequence[RolloutGroup]) -> None:
        """Run other tasks before `step` if it exceeds the limit with what was inserted before.

        Not after each batch: in a busy event loop a checkpoint takes a tenth of a second, and
        batches would arrive faster than they are inserted.
        """
        num_completions = sum(len(group.completions) for group in step)
        self._turn_groups += len(step)
        self._turn_completions += num_completions
        if self._turn_groups > GROUPS_A_STEP or self._turn_completions > COMPLETIONS_A_STEP:
            await trio.lowlevel.checkpoint()
            self._turn_groups, self._turn_completions = len(step), num_completions

    async def write_all(self) -> None:
        """Write all pending batches in one transaction, and notify the event handlers."""
        kept = [one for one in self._unwritten if one[0].batch_id not in self._withdrawn]
        self._unwritten, self._unwritten_bytes = [], 0
        if not kept:
            return
        rows = [
            (one.batch_id, one.publisher, one.batch.sequence, one.envelope, received_ms, deliverer)
            for one, deliverer, received_ms in kept
        ]
        try:
            await self._store.add_all(rows)
        except StoreError as error:
            log.log(error.log_level, "batches kept in memory only: %s", error)
            return
        for signed, _, received_ms in kept:
            if signed.batch_id not in self._withdrawn:
                self._events.emit(BatchStored(signed=signed, received_ms=received_ms, own=False))

    def keep_own(self, signed: SignedBatch) -> None:
        """Record an own batch that is already on disk."""
        now = trio.current_time()
        self._take_in(published_groups(signed), len(signed.envelope), now, own=True)
        self._events.emit(BatchStored(signed=signed, received_ms=self._store.wall_ms(), own=True))

    def lease(
        self, holder: str, count: int, *, lease_seconds: float, max_bytes: float = math.inf
    ) -> list[BufferEntry]:
        """Lease up to `count` external groups, of at most `max_bytes` together but at least one."""
        if not count:
            return []
        entries = self._buffer.lease(
            count,
            holder=holder,
            now=trio.current_time(),
            lease_seconds=lease_seconds,
            weight_of=self._weight_of,
            has_signal=self._has_signal if self._settings.publisher_sampling != "uniform" else None,
            by_shares=self._settings.publisher_sampling != "uniform",
        )
        num_bytes = 0.0
        for number, entry in enumerate(entries):
            num_bytes += entry.num_bytes
            if number and num_bytes > max_bytes:
                self._buffer.release([one.group.group_id for one in entries[number:]], holder)
                return entries[:number]
            group = entry.group
            self._events.emit(
                GroupLeased(
                    group_id=group.group_id, publisher=group.publisher, network=entry.network
                )
            )
        return entries

    def _has_signal(self, publisher: PeerId) -> bool:
        book = self._reputation
        return book is None or book.sampling.has_signal(publisher, trio.current_time())

    def _weight_of(self, publisher: PeerId, source: str = "") -> float:
        """Return the factor on a publisher's sampling probability, 0 to 1."""
        if self._reputation is None:
            return 1.0
        if self._settings.publisher_sampling == "uniform":
            return 0.0 if self._reputation.is_blocked(publisher) else 1.0
        return self._reputation.sampling_weight(publisher, trio.current_time(), source)

    def view(self, connected: Collection[PeerId]) -> Buffer:
        """Return the buffer by publisher; `connected` peers are named too."""
        now, book = trio.current_time(), self._reputation
        return account(
            self._buffer.stats(now),
            self._buffer.counters(),
            connected=connected,
            weight_of=self._weight_of,
            weights=PublisherWeights() if book is None else book.sampling,
            now=now,
        )

    def verified(self, group_id: GroupId, rewards: Sequence[float]) -> None:
        """Record the trainer's rewards for a group, for its publisher's weight."""
        self._events.emit(GroupVerified(group_id=group_id, rewards=tuple(rewards)))
        theirs = self._buffer.get(group_id)
        entry = theirs or self._buffer.get_own(group_id)
        if entry is None or self._reputation is None:
            return
        self._reputation.sampling.report(
            group_id,
            publisher=entry.group.publisher,
            family=entry.group.group.task.family,
            rewards=rewards,
            own=theirs is None,
            now=trio.current_time(),
            source=source_of(entry),
        )

    def trained(self, round_number: int, outcomes: Sequence[GroupOutcome]) -> None:
        """Record what became of the groups of a round."""
        at_ms = self._store.wall_ms()
        self._events.emit(RoundTrained(round=round_number, outcomes=outcomes, at_ms=at_ms))

    async def settle(
        self, holder: str, consumed: Sequence[GroupId], released: Sequence[GroupId]
    ) -> int:
        """End leases; consumed ids are on disk when this returns.

        Raises:
            StoreError: nothing was consumed.
        """
        if consumed:
            await self._store.consume(list(consumed))
            self._buffer.consume(consumed)
        if released:
            self._buffer.release(released, holder)
        return len(consumed) + len(released)

    async def withdraw(self, pair: Equivocation, second: bytes) -> None:
        """Withdraw the first of two batches signed under one number; store both as evidence."""
        self._withdrawn[pair.first] = None
        self._discard(pair.publisher, pair.first)
        self._events.emit(BatchWithdrawn(batch_id=pair.first))
        first = self.unwritten(pair.first)
        try:
            await self._store.add_equivocation(
                pair.publisher, pair.sequence, pair.first, second, unwritten=first
            )
        except StoreError as error:
            log.log(error.log_level, "evidence not stored: %s", error)

    def unwritten(self, batch_id: BatchId) -> bytes | None:
        """Return the envelope of a batch that is not on disk yet."""
        waiting = (one for one, _, _ in self._unwritten if one.batch_id == batch_id)
        return next((one.envelope for one in waiting), None)

    def _discard(self, publisher: PeerId, batch_id: BatchId) -> None:
        """Remove a batch's groups from the buffer; other publishers' copies remain."""
        entries = [
            one.group for one in self._buffer.external_groups() if one.group.batch_id == batch_id
        ]
        self._buffer.discard([group.group_id for group in entries], publisher)

    async def _replace_removed(self) -> None:
        """Replace groups removed by their publisher with copies in other publishers' batches."""
        for _ in range(MAX_COPIES):  # the first copy's publisher may have equivocated, too
            missing = await self._missing()
            if missing:
                await self.write_all()  # copies are read from disk
            for copy, ids in missing.items():
                await self._take_from(copy, frozenset(ids))

    async def _missing(self) -> dict[Copy, list[GroupId]]:
        """Return the removed groups, by the batch that has a copy."""
        missing: dict[Copy, list[GroupId]] = {}
        for number, group_id in enumerate(self._copies):
            if number % GROUPS_A_STEP == 0:
                await trio.lowlevel.checkpoint()
            if self._buffer.holds(group_id):
                continue
            if self._buffer.has_seen(group_id):
                self._copies.forget(group_id)
            elif (copy := self._copies.take(group_id)) is not None:
                missing.setdefault(copy, []).append(group_id)
        return missing

    async def _take_from(self, copy: Copy, ids: Collection[GroupId]) -> None:
        """Insert some groups of a batch on disk, with their original age and origin."""
        if copy.batch_id in self._withdrawn:
            self._buffer.refuse(ids, copy.publisher)
            return
        try:
            envelope = await self._store.envelope_part(
                copy.batch_id, 0, self._manifest.rules.max_envelope_bytes
            )
            if envelope is None:
                return
            (signed,) = await self._reopener.open([envelope])
            if isinstance(signed, Rejected):
                raise signed
        except (StoreError, Rejected) as error:
            log.log(logging.DEBUG, "a batch with removed groups cannot be read: %s", error)
            return
        groups = [one for one in signed.batch.groups if digests.group_id(one) in ids]
        await self._buffered(signed, groups, copy.received_at, copy.deliverer)

    def _take_in(
        self,
        groups: Sequence[PublishedGroup],
        num_bytes: int,
        received_at: float,
        *,
        own: bool,
        deliverer: Deliverer | None = None,
    ) -> None:
        """Insert the groups of an envelope of `num_bytes`, and report the new ones."""
        now = trio.current_time()
        share = num_bytes // max(1, len(groups))
        offer = self._buffer.record_own if own else self._buffer.insert
        new: list[PublishedGroup] = []
        also: list[BufferEntry] = []
        for group in groups:
            cost = share + weight_of(group.group)
            entry = BufferEntry(
                group=group,
                num_bytes=cost,
                received_at=received_at,
                network=deliverer.network if deliverer is not None else "",
                connection=deliverer.peer_id if deliverer is not None else "",
                by_publisher=deliverer is not None and deliverer.peer_id == group.publisher,
            )
            outcome = offer(entry, now)
            if outcome is InsertOutcome.STORED:
                new.append(group)
            elif outcome is InsertOutcome.DUPLICATE and not own and self._is_anothers(group):
                also.append(entry)
        for entry in also:
            self._copies.add(entry)
        if new:
            self._events.emit(GroupsStored(groups=tuple(new), at_ms=self._store.wall_ms()))

    def _is_anothers(self, group: PublishedGroup) -> bool:
        """Return whether the buffer has a group from another publisher than this one."""
        entry = self._buffer.get(group.group_id)
        if entry is None:  # withdrawn, but still leased
            return self._buffer.holds(group.group_id)
        return entry.group.publisher != group.publisher

    def _of_use(self) -> set[BatchId]:
        """Return the batches with a buffered group, a possible replacement, or an own group."""
        shown = (*self._buffer.external_groups(), *self._buffer.own_groups())
        return {entry.group.batch_id for entry in shown} | self._copies.batch_ids()

    async def _prune(self) -> None:
        try:
            await self._store.prune(
                keep=self._of_use(),
                max_age_ms=int(self._settings.max_age_seconds * 1000),
                max_bytes=self._settings.max_store_bytes,
                grace_ms=_SERVED_MS,
            )
        except StoreError as error:
            log.log(error.log_level, "store not pruned: %s", error)

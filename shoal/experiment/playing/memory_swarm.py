"""A swarm in memory: the node's own parts around a hub instead of a network.

    Rounds ─▶ MemoryExchange ─▶ sign ─▶ Hub ─▶ every other member:
                           ▲                          validate ─▶ ledger ─▶ buffer
                           └───────────── sample (lease) ◀──────────────────┘

Everything but the wire between members is what a node runs: signed envelopes, verdicts, the
publishers' ledger, the replay buffer and its draw. Time is virtual, so nothing depends on a clock.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from p2p.buffer.replay import ReplayBuffer
from p2p.buffer.types import BufferLimits, Entry, Pool
from p2p.intake.ledger import PublisherLedger
from p2p.intake.validation import (
    Rejected,
    ValidationContext,
    check_questions,
    coordinates_of,
    open_batch,
    published_groups,
)
from p2p.standing.draw_weights import draw_weights
from p2p.standing.sampling import SamplingStandings
from policy.node.link import NodeLink
from shoal.experiment.playing.tasks import SharedWorker
from shoal_ipc import messages as m
from shoal_settings.schema import Settings
from shoal_tasks.swarm import rules_of
from shoal_wire.codec import encode_batch, group_to_bytes
from shoal_wire.digests import group_id
from shoal_wire.envelope import peer_id_of, seal
from shoal_wire.manifest import Manifest
from shoal_wire.rules import BatchRules
from shoal_wire.types import GroupId, PeerId, RolloutBatch, SignedBatch
from shoal_wire.verdict import Reason

NOBODY = PeerId("")
_LEASE_SECONDS = 86_400.0
_OWN_REMEMBERED = 4096
_START_MS = 1_700_000_000_000
"""Where virtual time starts: any moment does."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A member's identity, the same for the same seed."""

    private: Ed25519PrivateKey
    public: bytes
    peer_id: PeerId

    @classmethod
    def from_seed(cls, seed: int) -> Keys:
        """Derive a key pair. For experiments only: who knows the seed knows the key."""
        secret = hashlib.sha256(f"experiment key {seed}".encode()).digest()
        private = Ed25519PrivateKey.from_private_bytes(secret)
        public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return cls(private, public, peer_id_of(public))


class Clock:
    """Virtual time, in seconds; one round is one second."""

    def __init__(self) -> None:
        self.now = 0.0

    @property
    def wall_ms(self) -> int:
        """The same as a wall clock."""
        return _START_MS + int(self.now * 1000)


class Hub:
    """Delivers what a member publishes to all others, at once and in order of joining."""

    def __init__(self, manifest: Manifest, worker: SharedWorker) -> None:
        self.manifest = manifest
        self.clock = Clock()
        self._worker = worker
        self._rules: BatchRules = rules_of(manifest)
        self._members: list[Member] = []

    def join(self, member: Member) -> None:
        """Let a member hear what is published from now on."""
        self._members.append(member)

    def publish(self, raw: bytes, author: PeerId) -> None:
        """Judge an envelope and hand it to every other member."""
        try:
            signed = self._judge(raw, author)
        except Rejected as rejected:
            for member in self._members:
                if member.peer_id != author:
                    member.verdicts[rejected.reason] += 1
            return
        for member in self._members:
            if member.peer_id != author:
                member.receive(signed)

    def _judge(self, raw: bytes, author: PeerId) -> SignedBatch:
        """What does not depend on who receives: the same bytes get the same verdict."""
        context = ValidationContext(rules=self._rules, me=NOBODY)
        signed = open_batch(raw, author=author, context=context, now_ms=self.clock.wall_ms)
        digests = self._worker.question_digests(coordinates_of(signed.batch))
        reason = check_questions(signed.batch, digests)
        if reason is not None:
            raise Rejected(reason)
        return signed


class Member:
    """A node of the swarm without its network: identity, ledger and buffer."""

    def __init__(self, hub: Hub, keys: Keys, settings: Settings) -> None:
        self._hub = hub
        self._keys = keys
        self.peer_id = keys.peer_id
        self.ledger = PublisherLedger()
        self.buffer = ReplayBuffer(_limits(settings), random.Random(settings.seed))
        self.standings = SamplingStandings()
        self._draws = settings.draws
        self._own: OrderedDict[GroupId, str] = OrderedDict()
        """Families of own groups, the oldest forgotten first."""
        self.verdicts: Counter[Reason] = Counter()
        self.sequence = 0
        self.on_receive: Callable[[SignedBatch], None] = lambda _signed: None
        """Called for every valid batch of others."""
        self.on_publish: Callable[[RolloutBatch], RolloutBatch | None] = lambda batch: batch
        """May change what goes out, or hold it back: for peers that are not honest."""

    def receive(self, signed: SignedBatch) -> None:
        """Take in a batch that the hub has judged, as `p2p.intake` and the node's pool do."""
        batch, now = signed.batch, self._hub.clock.now
        size = len(batch.groups)
        reason = self.ledger.check(signed.publisher, batch.sequence, signed.batch_id, size, now)
        if reason is not None:
            self.verdicts[reason] += 1
            return
        self.ledger.record(signed.publisher, batch.sequence, signed.batch_id, size, now)
        self.verdicts[Reason.VALID] += 1
        self.on_receive(signed)
        for group in published_groups(signed):
            entry = Entry(
                group=group, num_bytes=len(group_to_bytes(group.group)), own=False, received_at=now
            )
            self.buffer.insert(entry, now)

    def publish(self, body: m.Publish) -> None:
        """Sign a batch and give it to the hub."""
        self.sequence += 1
        for group in body.groups:
            self._own[group_id(group)] = group.task.family
        while len(self._own) > _OWN_REMEMBERED:
            self._own.popitem(last=False)
        batch = self.on_publish(
            RolloutBatch(
                swarm_digest=self._hub.manifest.digest,
                sequence=self.sequence,
                round=body.round,
                created_ms=self._hub.clock.wall_ms,
                policy=body.policy,
                sampling=body.sampling,
                groups=body.groups,
            )
        )
        if batch is not None:
            sign = self._keys.private.sign
            raw = seal(encode_batch(batch), public_key=self._keys.public, sign=sign)
            self._hub.publish(raw, self.peer_id)

    def sample(self, count: int) -> tuple[m.SampledGroup, ...]:
        """Lease up to `count` groups of others, by the node's own draw."""
        now = self._hub.clock.now
        publishers = self.buffer.publishers(Pool.EXTERNAL)
        weights = draw_weights(
            self._draws,
            self.standings.weights(publishers, now),
            self.buffer.contributed(Pool.EXTERNAL),
        )
        entries = self.buffer.lease(
            count, holder=self.peer_id, now=now, lease_seconds=_LEASE_SECONDS, weights=weights
        )
        return tuple(m.SampledGroup(published=entry.group, own=False) for entry in entries)

    def verified(self, report: m.GroupReport) -> None:
        """Take in the trainer's rewards of a group, as the node does: its publisher's standing."""
        view = self.buffer.get(report.group_id)
        family = (
            self._own.get(report.group_id) if view is None else view.entry.group.group.task.family
        )
        if family is not None:
            self.standings.report(
                report.group_id,
                publisher=report.publisher,
                family=family,
                rewards=report.rewards,
                own=view is None,
                now=self._hub.clock.now,
            )

    def settle(self, *, consumed: Sequence[GroupId] = (), released: Sequence[GroupId] = ()) -> None:
        """End leases."""
        self.buffer.ack(consumed, self.peer_id, self._hub.clock.now)
        self.buffer.release(released, self.peer_id)


class MemoryExchange(NodeLink):
    """The trainer's side of a member in the same process: calls instead of messages.

    Every round is a checkpoint: nothing here survives a process, so nothing has to be told twice.
    """

    def __init__(self, member: Member) -> None:
        super().__init__(None)
        self._member = member

    @property
    def connected(self) -> bool:
        """Always."""
        return True

    @property
    def peer_id(self) -> PeerId:
        """The member's."""
        return self._member.peer_id

    def share(self, batch: m.Publish) -> None:
        """Sign and deliver a batch before this returns."""
        self._member.publish(batch)

    def sample(self, count: int) -> tuple[m.SampledGroup, ...]:
        """Lease up to `count` groups of others."""
        return self._member.sample(count)

    def hold_until_checkpoint(self, ids: Sequence[GroupId]) -> None:
        """The groups have had their effect: they are consumed."""
        self._member.settle(consumed=ids)

    def end_leases(
        self, *, consumed: Sequence[GroupId] = (), released: Sequence[GroupId] = ()
    ) -> Any:
        """End leases of groups that have had no effect."""
        self._member.settle(consumed=consumed, released=released)
        return True

    def report(self, reports: Sequence[m.GroupReport]) -> None:
        """Hand on what verification said."""
        for report in reports:
            self._member.verified(report)


def _limits(settings: Settings) -> BufferLimits:
    """As the node makes them from the same settings."""
    return BufferLimits(
        max_groups=settings.buffer_groups,
        max_bytes=settings.buffer_bytes,
        max_age_seconds=settings.buffer_seconds,
        max_groups_per_publisher=min(settings.publisher_groups, settings.buffer_groups),
        max_bytes_per_publisher=max(1, settings.buffer_bytes // 4),
        own_max_groups=settings.buffer_groups,
        own_max_bytes=settings.buffer_bytes,
    )

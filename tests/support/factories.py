"""Swarms, groups, batches and envelopes for tests, valid unless a test changes them.

    peer = Author()
    raw = peer.envelope(peer.batch([group(1), group(2)]))

Questions come from `InstantWorker` of `tests.support.doubles` (instant and controllable), or from
`real_worker` (the node's sandboxed process, one for the whole test session).
"""

from __future__ import annotations

import atexit
import functools
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import trio

from shoal_ipc import messages as m
from shoal_p2p.intake.ledger import Equivocation
from shoal_p2p.intake.validation import ValidationContext
from shoal_p2p.net.identity import Identity
from shoal_tasks.families import EASY, TRAIN_SEED_MIN, coordinates
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import families_of, rules_of
from shoal_tasks.types import (
    Play,
    PlayRequest,
    ScoreRequest,
    ScoreResult,
    TaskCoordinates,
    TaskItem,
)
from shoal_tasks.wire_tasks import make_task
from shoal_tasks.worker import sync as client_sync
from shoal_wire.announcement import Announcement, encode_announcement
from shoal_wire.codec import encode_batch
from shoal_wire.digests import batch_id
from shoal_wire.envelope import seal
from shoal_wire.limits import ANNOUNCEMENT_PAYLOAD_TYPE, BATCH_PAYLOAD_TYPE
from shoal_wire.manifest import Manifest, SwarmRules, make_manifest
from shoal_wire.rules import BatchRules
from shoal_wire.types import (
    Completion,
    Digest,
    FinishReason,
    PeerId,
    PolicyInfo,
    RolloutBatch,
    RolloutGroup,
    SamplingParams,
    SignedBatch,
    Task,
)
from tests.support.doubles.identities import fresh_identity
from tests.support.doubles.worker import fake_question

T = TypeVar("T")

NOW_MS = 1_700_000_000_000
GCD: FamilySpec = next(spec for spec in EASY if spec.generator == "gcd")
SPECS: tuple[FamilySpec, ...] = EASY
POLICY = PolicyInfo(model_name="tiny", tokenizer_digest=Digest(b"t" * 16), policy_version=3)
SAMPLING = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=12)


def swarm(name: str = "test swarm", **rules: object) -> Manifest:
    """Return the manifest of a swarm with the easy families, with changed rules."""
    return make_manifest(name, families_of(SPECS), replace(SwarmRules(), **rules))  # type: ignore[arg-type]


def context(manifest: Manifest, me: PeerId) -> ValidationContext:
    """Return the validation context of a node `me` in this swarm."""
    return ValidationContext(rules=batch_rules(manifest), me=me)


def batch_rules(manifest: Manifest) -> BatchRules:
    """Return a manifest's rules for checking batches."""
    return rules_of(manifest)


def coordinates_at(number: int) -> TaskCoordinates:
    """Return the coordinates of task `number` of `GCD`."""
    return coordinates(GCD, TRAIN_SEED_MIN + number)


def task(number: int = 0, *, question: str | None = None, **changes: object) -> Task:
    """Return task `number`; its question is the fake one by default."""
    at = coordinates_at(number)
    made = task_of(GCD, at.seed, question or fake_question(at))
    return replace(made, **changes)  # type: ignore[arg-type]


def task_of(spec: FamilySpec, seed: int, question: str) -> Task:
    """Return the task of a family's seed with its real question, as its publisher sends it."""
    return make_task(coordinates(spec, seed), question, spec)


def completion(text: str = "7", **changes: object) -> Completion:
    """Return a completion that ended by itself."""
    made = Completion(text=text, num_tokens=len(text) + 1, finish_reason=FinishReason.STOP)
    return replace(made, **changes)  # type: ignore[arg-type]


def group(
    number: int = 0, texts: Sequence[str] = ("7", "8"), *, of: Task | None = None
) -> RolloutGroup:
    """Return completions of task `number`."""
    return RolloutGroup(
        task=of or task(number), completions=tuple(completion(text) for text in texts)
    )


def publish(
    groups: Sequence[RolloutGroup] | None = None, *, key: bytes = b"key", round: int = 1
) -> m.Publish:
    """Return a trainer's request to publish `groups`."""
    return m.Publish(
        client_key=key,
        round=round,
        policy=POLICY,
        sampling=SAMPLING,
        groups=tuple(groups if groups is not None else [group()]),
    )


def equivocation(first: SignedBatch, second: SignedBatch) -> Equivocation:
    """Return the proof that a publisher signed both under one sequence number."""
    return Equivocation(
        publisher=first.publisher,
        sequence=first.batch.sequence,
        first=first.batch_id,
        second=second.batch_id,
    )


@dataclass
class Author:
    """A publisher with a key."""

    manifest: Manifest = field(default_factory=swarm)
    identity: Identity = field(default_factory=fresh_identity)
    now_ms: int = NOW_MS
    sequence: int = 0

    @property
    def peer_id(self) -> PeerId:
        """The author's peer id."""
        return self.identity.peer_id

    def batch(
        self, groups: Sequence[RolloutGroup] | None = None, **changes: object
    ) -> RolloutBatch:
        """Return a valid batch under the next sequence number."""
        self.sequence += 1
        made = RolloutBatch(
            swarm_digest=self.manifest.digest,
            sequence=self.sequence,
            round=1,
            created_ms=self.now_ms,
            policy=POLICY,
            sampling=SAMPLING,
            groups=tuple(groups if groups is not None else [group()]),
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    def envelope(self, batch: RolloutBatch | None = None) -> bytes:
        """Return a signed envelope around `batch`."""
        return self.seal(encode_batch(batch or self.batch()))

    def announcement(self, envelope: bytes = b"", **changes: object) -> bytes:
        """Return a signed announcement of a batch under the latest number."""
        announced = Announcement(
            swarm_digest=self.manifest.digest,
            sequence=self.sequence,
            previous_sequence=0,
            created_ms=self.now_ms,
            num_groups=1,
            batch_id=batch_id(envelope),
            num_bytes=len(envelope),
            expires_ms=self.now_ms + 60_000,
        )
        announced = replace(announced, **changes)  # type: ignore[arg-type]
        return self.seal(encode_announcement(announced), ANNOUNCEMENT_PAYLOAD_TYPE)

    def seal(self, payload: bytes, payload_type: bytes = BATCH_PAYLOAD_TYPE) -> bytes:
        """Return a signed envelope around any payload."""
        return seal(
            payload,
            public_key=self.identity.public_key_bytes,
            sign=self.identity.sign,
            payload_type=payload_type,
        )

    def signed(self, batch: RolloutBatch | None = None) -> SignedBatch:
        """Return a batch as validation passes it on."""
        batch = batch or self.batch()
        raw = self.envelope(batch)
        return SignedBatch(
            batch_id=batch_id(raw), publisher=self.peer_id, batch=batch, envelope=raw
        )

    def sign(self, *groups: int | RolloutGroup, **changes: object) -> SignedBatch:
        """Return a signed batch with these groups, or with one group for each of these tasks."""
        made = [group(g) if isinstance(g, int) else g for g in groups]
        return self.signed(self.batch(made, **changes))


class SharedWorker:
    """The session's task worker in place of a node's own, which takes seconds to start."""

    report = None

    async def run(self, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        real_worker()
        task_status.started()
        await trio.sleep_forever()

    async def question_digests(self, tasks: Sequence[TaskCoordinates]) -> list[Digest]:
        """Return one digest per task."""
        return await self._ask(lambda worker: worker.question_digests(tasks))

    def known_digests(self, _tasks: Sequence[TaskCoordinates]) -> None:
        """Return None: nothing is cached."""

    async def questions(self, tasks: Sequence[TaskCoordinates]) -> list[str]:
        """Return one question per task."""
        return await self._ask(lambda worker: worker.questions(tasks))

    async def items(self, tasks: Sequence[TaskCoordinates]) -> list[TaskItem]:
        """Return one question and its answer per task."""
        return await self._ask(lambda worker: worker.items(tasks))

    async def draw_for_judge(self, rng: random.Random) -> tuple[TaskCoordinates, str]:
        """Return a judge's task."""
        return await self._ask(lambda worker: worker.draw_for_judge(rng))

    async def play(self, requests: Sequence[PlayRequest]) -> list[Play]:
        """Return environments' replies to the beginnings of games."""
        return await self._ask(lambda worker: worker.play(requests))

    async def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Return one result per request."""
        return await self._ask(lambda worker: worker.score(requests))

    async def _ask(self, question: Callable[[client_sync.SyncTaskWorker], T]) -> T:
        def ask() -> T:
            with _worker_lock:  # the worker serves one thread at a time
                return question(real_worker())

        return await trio.to_thread.run_sync(ask)


_worker_lock = threading.RLock()


@functools.cache
def real_worker() -> client_sync.SyncTaskWorker:
    """Return the session's task worker for `SPECS`, started on first use."""
    worker = client_sync.SyncTaskWorker(SPECS)
    worker.start()
    atexit.register(worker.close)
    return worker


def real_question(number: int) -> str:
    """Return the question that every node of the swarm regenerates for task `number`."""
    return real_worker().questions([coordinates_at(number)])[0]

"""One node's intake alone: the batches it stores, the peers it reports, the threads it uses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from shoal_p2p.intake.intake import Announcements, Intake, IntakeLimits, Receivers
from shoal_p2p.intake.ledger import Equivocation, PublisherLedger
from shoal_p2p.intake.verifier_scheduler import QuestionSource
from shoal_wire.manifest import Manifest
from shoal_wire.types import PeerId, RolloutGroup, SignedBatch
from shoal_wire.verdict import Verdict
from tests.support import factories as make
from tests.support.doubles.worker import InstantWorker


class IntakeBench:
    """An intake that does not drain its queue until it is `running`; threads run at once."""

    def __init__(
        self,
        manifest: Manifest | None = None,
        *,
        me: PeerId | None = None,
        questions: QuestionSource | None = None,
        ledger: PublisherLedger | None = None,
        announcements: Announcements | None = None,
        queue_batches: int = 256,
        lanes: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """`options` are those of `Intake`."""
        self.manifest = manifest or make.swarm()
        self.fake = InstantWorker()
        self.kept: list[SignedBatch] = []
        self.accused: list[tuple[Equivocation, bytes]] = []
        self.in_threads = 0
        self.ledger = ledger or PublisherLedger()
        self.intake = Intake(
            context=make.context(self.manifest, me or make.fresh_identity().peer_id),
            questions=questions or self.fake,
            ledger=self.ledger,
            receivers=Receivers(
                keep=self._keep,
                on_equivocation=self._on_equivocation,
                announcements=announcements or Announcements(),
            ),
            wall_ms=lambda: make.NOW_MS,
            limits=IntakeLimits(queue_batches=queue_batches, lanes=lanes or {}),
            in_thread=self.in_thread,
            **options,
        )

    async def _keep(self, batches: Sequence[SignedBatch]) -> None:
        self.kept += batches

    async def _on_equivocation(self, pair: Equivocation, envelope: bytes) -> None:
        self.accused.append((pair, envelope))

    async def in_thread(self, sync_fn: Callable[..., Any], *args: Any, **_how: object) -> Any:
        """Call it here, and count the call."""
        await trio.lowlevel.checkpoint()
        self.in_threads += 1
        return sync_fn(*args)

    async def bring(
        self, *groups: RolloutGroup, author: make.Author | None = None, by: PeerId | None = None
    ) -> Verdict:
        """Validate a batch of `author` (default: a new one), delivered by `by` or its author."""
        author = author or make.Author(self.manifest)
        raw = author.envelope(author.batch(groups))
        return await self.intake.validate(raw, author.peer_id, by or author.peer_id)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Drain the queue of batches for the buffer."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.intake.run)
            yield
            nursery.cancel_scope.cancel()

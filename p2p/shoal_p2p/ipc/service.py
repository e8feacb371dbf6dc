"""Serves the socket's requests, for the trainer and for inspectors."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any

import trio

from shoal_base.bounded import MANY
from shoal_base.waits import HOUR_S
from shoal_ipc import messages as m
from shoal_p2p.ipc.inspector import Control, InspectorService, TaskOrder, View
from shoal_p2p.ipc.judge_link import JudgeLink
from shoal_p2p.rollouts.outbox import (
    MAX_PACED_GROUPS,
    Outbox,
    OutboxFullError,
    OversizeBatchError,
    split_by_topic,
)
from shoal_p2p.rollouts.pool import RolloutPool
from shoal_p2p.store.store import StoreError, StoreFault
from shoal_wire.framing import MAX_IPC_FRAME_BYTES
from shoal_wire.manifest import Manifest
from shoal_wire.rules import check_completion, is_reserved
from shoal_wire.types import PeerId

log = logging.getLogger(__name__)

_MAX_LEASE_SECONDS = 24 * HOUR_S
"""Longest lease; those that a trainer names in its hello get this length."""
_MAX_SAMPLE_BYTES = MAX_IPC_FRAME_BYTES // 2


class TrainerLink:
    """The trainer on the node's socket: its connection and its status."""

    def __init__(self) -> None:
        """No trainer is connected at first."""
        self.holder: str | None = None
        self.pid: int | None = None
        self.status: dict[str, Any] = {}

    @property
    def connected(self) -> bool:
        """True while a trainer is on the socket."""
        return self.holder is not None

    def on_connect(self, holder: str, pid: int) -> None:
        """Record that the trainer of process `pid` now uses the connection `holder`."""
        self.holder, self.pid = holder, pid

    def on_disconnect(self) -> None:
        """Record that its connection has ended."""
        self.holder = self.pid = None


class Service(InspectorService):
    """Answers requests; `shoal_ipc.messages` documents each of them."""

    def __init__(
        self,
        *,
        me: PeerId,
        manifest: Manifest,
        pool: RolloutPool,
        outbox: Outbox,
        link: TrainerLink,
        views: Mapping[str, View],
        control: Control | None = None,
        order: TaskOrder | None = None,
        judge: JudgeLink | None = None,
    ) -> None:
        super().__init__(me=me, manifest=manifest, views=views, control=control, order=order)
        self._judge = judge
        self._pool = pool
        self._outbox = outbox
        self._link = link

    async def hello(self, holder: str, hello: m.Hello) -> m.HelloReply | m.Failure:
        """Answer a hello; a trainer's list of its leases is applied first."""
        if hello.role is m.Role.TRAINER:
            if self._link.holder is not None:
                # A trainer may reconnect before the end of its old connection is noticed.
                self._pool.buffer.release_holder(self._link.holder)
            self._link.on_connect(holder, hello.pid)
            try:
                await self._pool.settle(holder, hello.consumed_ids, ())
            except StoreError as error:
                return _storage_failure(error)
            if self._link.holder != holder:
                # It has connected again meanwhile: leases of this connection would end with it.
                return m.Failure(reason="another trainer has replaced this one")
            self._pool.buffer.hold(hello.held_ids, holder, trio.current_time(), _MAX_LEASE_SECONDS)
        return await super().hello(holder, hello)

    async def handle(self, holder: str, role: m.Role, body: m.Body) -> m.Body:
        """Answer one request."""
        if isinstance(body, m.Inspect | m.Control | m.TaskOrder):
            return await super().handle(holder, role, body)
        if role is m.Role.PUBLISHER and isinstance(body, m.Publish):
            return await self._guarded(self._publish(body, None))
        if role is not m.Role.TRAINER:
            return m.Failure(
                reason=f"a connection with role {role.value} may not send {type(body).__name__}"
            )
        if holder != self._link.holder:
            return m.Failure(reason="another trainer has replaced this one")
        return await self._guarded(self._handle_trainer(holder, body))

    async def _guarded(self, answer: Awaitable[m.Body]) -> m.Body:
        """Turn a storage error into a failure that may be retried: a full disk may get space."""
        try:
            return await answer
        except StoreError as error:
            return _storage_failure(error)

    async def goodbye(self, holder: str, role: m.Role) -> None:
        """Release the leases of a connection that has ended."""
        self._pool.buffer.release_holder(holder)
        if self._link.holder == holder:
            self._link.on_disconnect()
            log.debug("the trainer has disconnected")

    async def _handle_trainer(self, holder: str, body: m.Body) -> m.Body:
        match body:
            case m.Publish():
                return await self._publish(body, MAX_PACED_GROUPS)
            case m.Sample():
                return self._sample(holder, body)
            case m.Report():
                # First the rewards: a group that is consumed leaves the buffer.
                for report in body.groups:
                    self._pool.verified(report.group_id, report.rewards)
                if body.round:
                    self._pool.trained(body.round, body.outcomes)
                ended = await self._pool.settle(holder, body.consumed_ids, body.released_ids)
                return m.Ok(count=len(body.groups) + ended)
            case m.TrainerStatus():
                return self._take_status(body)
            case m.JudgeAsk() | m.JudgeAnswer():
                return self._ask_judge(body)
            case _:
                return m.Failure(reason=f"{type(body).__name__} is not a request")

    async def _publish(self, body: m.Publish, max_waiting_groups: int | None) -> m.Body:
        if not body.client_key or not body.groups:
            return m.Failure(reason="a batch needs a key and at least one group")
        rules = self._manifest.rules
        for group in body.groups:
            if is_reserved(group.task):
                return m.Failure(
                    reason=f"seed {group.task.seed} is reserved for evaluation: peers reject it"
                )
            if not rules.min_completions <= len(group.completions) <= rules.max_completions:
                return m.Failure(reason=f"{len(group.completions)} completions in a group")
            for completion in group.completions:
                fault = check_completion(completion, rules)
                if fault is not None:
                    return m.Failure(reason=f"peers would reject a completion: {fault}")
        for part in split_by_topic(body, self._manifest):
            try:
                own = await self._outbox.accept(part, max_groups=max_waiting_groups)
            except OutboxFullError as error:
                # What was accepted of it is recognised when it is sent again.
                return m.Failure(reason=str(error), retryable=True)
            except OversizeBatchError as error:
                return m.Failure(reason=str(error))
            if own.signed is not None:
                self._pool.keep_own(own.signed)
        return m.PublishReply(sequence=own.sequence, batch_id=own.batch_id, is_new=own.is_new)

    def _sample(self, holder: str, body: m.Sample) -> m.Body:
        entries = self._pool.lease(
            holder,
            min(body.num_external, MANY),
            lease_seconds=_lease_seconds(body.lease_seconds),
            max_bytes=_MAX_SAMPLE_BYTES,  # of one reply; the trainer samples again for more
        )
        return m.SampleReply(
            groups=tuple(
                replace(entry.group, network=entry.network[: m.MAX_LABEL_CHARS])
                for entry in entries
            ),
            ready_external=self._pool.buffer.ready(),
        )

    def _ask_judge(self, body: m.JudgeAsk | m.JudgeAnswer) -> m.Body:
        if self._judge is None:
            return m.Failure(reason="this node has no judge")
        return self._judge.ask() if isinstance(body, m.JudgeAsk) else self._judge.answer(body)

    def _take_status(self, body: m.TrainerStatus) -> m.Body:
        try:
            status = json.loads(body.json)
        except ValueError:
            return m.Failure(reason="status is not JSON")
        if not isinstance(status, dict):
            return m.Failure(reason="status is not a JSON object")
        self._link.status = status
        return m.Ok(count=1)


def _storage_failure(error: StoreError) -> m.Failure:
    full = error.fault is StoreFault.FULL
    return m.Failure(reason=f"{m.NO_ROOM}: {error}" if full else str(error), retryable=True)


def _lease_seconds(requested: float) -> float:
    # Written so that NaN, which compares false with everything, gives the minimum.
    return min(requested, _MAX_LEASE_SECONDS) if requested >= 1.0 else 1.0

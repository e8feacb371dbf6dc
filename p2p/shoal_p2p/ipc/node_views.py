"""Debug views of a node: status with buffer and trainer, the buffer, the latest rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

import trio

from shoal_ipc.answers.form import read
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import (
    Buffer,
    BufferTotals,
    CompletionRow,
    Fetch,
    OwnContribution,
    PublisherRow,
    Rollout,
    Rollouts,
    Status,
    Trainer,
    TurnRow,
)
from shoal_ipc.answers.node import Outbox as OutboxCounts
from shoal_ipc.unused import unused_says
from shoal_p2p.buffer.types import BufferStats, PublisherStats
from shoal_p2p.fetch.exchange import RolloutExchange
from shoal_p2p.ipc.dialogues import Dialogues
from shoal_p2p.ipc.inspector import view
from shoal_p2p.ipc.judge_link import JudgeLink
from shoal_p2p.ipc.service import TrainerLink
from shoal_p2p.ipc.views import CoreViews
from shoal_p2p.member import Member
from shoal_p2p.rollouts.contributions import Contribution
from shoal_p2p.rollouts.outbox import Outbox
from shoal_p2p.rollouts.pool import RolloutPool
from shoal_p2p.rollouts.recent import RecentGroup
from shoal_p2p.trainer_child import ChildState, TrainerChild
from shoal_tasks.errors import TaskError
from shoal_tasks.wire_tasks import coordinates_of
from shoal_wire.types import GroupId, PeerId

_MAX_ROLLOUTS: Final = 200
"""Groups in one answer: with their texts some megabytes, which a frame holds."""
_EXPECTED_S: Final = 2.0
"""Longest wait for the right answer: who asks does not wait much longer."""
_MAX_EXPECTED_CHARS: Final = 4096
"""Longest right answer that is told: no family has one of a page."""


class NodeViews(CoreViews):
    """Views of a node."""

    def __init__(
        self,
        member: Member,
        *,
        outbox: Outbox,
        pool: RolloutPool,
        link: TrainerLink,
        child: TrainerChild | None,
        exchange: RolloutExchange,
        judge: JudgeLink | None = None,
    ) -> None:
        super().__init__(member)
        self._outbox = outbox
        self._pool = pool
        self._recent = link.recent
        self._learning = link.learning
        self._link = link
        self._child = child
        self._exchange = exchange
        self._judge = judge
        self._dialogues = Dialogues(member.worker, member.families)

    def known_peers(self) -> set[PeerId]:
        """Return everybody whom a view may name, publishers who are away included."""
        here = super().known_peers()
        contributed = {row.peer_id for row in self._pool.contributions(here).peers}
        return here | contributed | set(self._pool.buffer.publishers())

    @view
    async def status(self, options: Mapping[str, Any]) -> Status:
        """The node at a glance."""
        pool, outbox, trainer = self._pool, self._outbox, self._trainer()
        return replace(
            await super().status(options),
            round=trainer.round,
            groups_published=pool.groups_published,
            groups_received=pool.groups_received,
            groups_external_used=trainer.groups_external_used or 0,
            outbox=OutboxCounts(
                unsent=outbox.num_unsent,
                batches_sent=outbox.num_batches_sent,
                batches_announced=outbox.num_batches_announced,
                batches_expired=outbox.num_batches_expired,
                batches_put_off=outbox.num_batches_put_off,
                late_s=round(outbox.late_s, 2),
            ),
            buffer=BufferTotals(**self._buffer_totals()),
            one_network=self._learning.origins.one_network(self._member.peer.parts.wall_ms()),
            identity_shared=self._exchange.twins.found,
            intake_waiting=self._member.intake.queue_length(),
            trainer=trainer,
            judge=None if self._judge is None else self._judge.view(),
        )

    @view
    async def buffer(self, _options: Mapping[str, Any]) -> Buffer:
        """The replay buffer, draws against contributions, by publisher and of this node."""
        member = self._member
        connected = {
            one.peer_id for one in member.host.connections() if member.peer.is_of_swarm(one.peer_id)
        }
        account = self._pool.contributions(connected)
        given = {one.peer_id: one for one in account.peers}
        held = {one.peer_id: one for one in self._stats().per_publisher}
        rows = (_publisher(one, held.get(one), given.get(one)) for one in {**held, **given})
        return Buffer(
            **self._buffer_totals(),
            publishers=tuple(rows),
            own=OwnContribution(
                contributed=account.own_contributed,
                drawn=account.own_drawn,
                trained=self._trainer().groups_external_used or 0,
                ratio=_rounded(account.own_ratio),
            ),
            silent=account.num_silent,
        )

    @view
    async def ledger(self, _options: Mapping[str, Any]) -> Ledger:
        """From whom the trainer has learnt, and its own families."""
        return self._learning.view(self._member.peer.parts.wall_ms())

    @view
    async def fetch(self, _options: Mapping[str, Any]) -> Fetch:
        """How batches came, what became of gaps, and what was given to others."""
        return read(Fetch, self._exchange.view(), shown=False)

    @view
    async def rollouts(self, options: Mapping[str, Any]) -> Rollouts:
        """The latest groups: question, completions, sender, and reward once verified.

        Options: `limit`, `after` (a `number`), `group` (an id: that one alone, if it is still
        kept), `questions` (false leaves them out: they have to be regenerated by the task worker,
        which validation needs too) and `texts` (false leaves out what was answered, which may be
        megabytes). Games come as dialogues, too, where both are wanted.
        """
        if (group_id := options.get("group")) is not None:
            found = self._recent.of_id(GroupId(bytes.fromhex(str(group_id))))
        else:
            limit = max(0, min(int(options.get("limit", 10)), _MAX_ROLLOUTS))
            found = self._recent.after(int(options.get("after", 0)), limit=limit)
        wanted = options.get("questions", True)
        questions = await self._questions(found) if wanted else [None] * len(found)
        with_texts = bool(options.get("texts", True))
        rows = [
            self._rollout(recent, question, with_texts=with_texts)
            for recent, question in zip(found, questions, strict=True)
        ]
        if wanted and with_texts:
            dialogues = await self._dialogues.of([recent.group.group for recent in found])
            rows = [_with_turns(row, of) for row, of in zip(rows, dialogues, strict=True)]
        if group_id is not None and wanted:
            rows = [
                replace(row, expected=await self._expected(recent))
                for recent, row in zip(found, rows, strict=True)
            ]
        return Rollouts(rollouts=tuple(rows))

    async def _expected(self, recent: RecentGroup) -> str | None:
        """The right answer by this node's own worker; None where it has none, or not in time."""
        task = recent.group.group.task
        if task.inline is not None:
            return None
        with trio.move_on_after(_EXPECTED_S):
            try:
                (item,) = await self._member.worker.items([coordinates_of(task)])
            except TaskError:
                return None
            return None if item.answer is None else item.answer[:_MAX_EXPECTED_CHARS]
        return None

    async def _questions(self, found: list[RecentGroup]) -> list[str | None]:
        """Regenerate questions; an inline task carries its own."""
        wanted = (recent.group.group.task for recent in found)
        tasks = [coordinates_of(task) for task in wanted if task.inline is None]
        try:
            made = iter(await self._member.worker.questions(tasks) if tasks else ())
        except TaskError:
            return [None] * len(found)
        inline = [recent.group.group.task.inline for recent in found]
        return [next(made) if task is None else task.question for task in inline]

    def _rollout(self, recent: RecentGroup, question: str | None, *, with_texts: bool) -> Rollout:
        group, rewards = recent.group, recent.rewards
        return Rollout(
            number=recent.number,
            group_id=group.group_id.hex(),
            publisher=group.publisher,
            own=group.publisher == self._member.peer_id,
            round=group.round,
            received_ms=recent.received_ms,
            age_s=round((self._member.peer.parts.wall_ms() - group.created_ms) / 1000, 3),
            model=group.policy.model_name,
            policy_version=group.policy.policy_version,
            family=group.group.task.family,
            seed=group.group.task.seed,
            index=group.group.task.index,
            question=question,
            reward=None if rewards is None else sum(rewards) / max(1, len(rewards)),
            used=recent.used,
            why_unused=unused_says(recent.why_unused),
            completions=tuple(
                CompletionRow(
                    text=completion.text if with_texts else None,
                    tokens=completion.num_tokens,
                    finish_reason=completion.finish_reason.value,
                    reward=rewards[i] if rewards is not None and i < len(rewards) else None,
                )
                for i, completion in enumerate(group.group.completions)
            ),
        )

    def _stats(self) -> BufferStats:
        return self._pool.buffer.stats(trio.current_time())

    def _buffer_totals(self) -> dict[str, Any]:
        stats = self._stats()
        names = (one.name for one in fields(BufferTotals))
        return {name: getattr(stats, name) for name in names}

    def _pids(self) -> dict[str, int | None]:
        child = self._child
        trainer = self._link.pid or (child.pid if child is not None else None)
        return {**super()._pids(), "trainer": trainer}

    def _trainer(self) -> Trainer:
        """Return the trainer's report, with what the node itself sees of it."""
        link, child = self._link, self._child
        told = read(Trainer, link.status, shown=False)
        if not link.connected:  # that it is being started is seen from here
            loading = child is not None and child.state is ChildState.RUNNING
            told = replace(told, phase="loading" if loading else None, progress=None)
        told = replace(
            told,
            state=self._trainer_state(told.state),
            pid=self._pids()["trainer"],
            connected=link.connected,
        )
        if child is None:
            return told
        if child.last_exit is not None:
            told = replace(
                told,
                last_exit=child.last_exit,
                last_error=child.last_error or None,
                next_start_s=_rounded(child.next_start_s),
            )
        return replace(told, restarts=child.restarts)

    def _trainer_state(self, told: str) -> str:
        if self._link.connected:
            return told or "connected"
        if self._child is None:
            return str(ChildState.DISABLED)
        if told == ChildState.FINISHED:
            return told  # about to end, or ended, whatever ended it
        if self._child.state is ChildState.RUNNING:
            # Alive but not on the socket: importing torch, or loading the model.
            return "loading"
        return str(self._child.state)


def _with_turns(row: Rollout, turns: Sequence[tuple[TurnRow, ...] | None]) -> Rollout:
    told = zip(row.completions, turns, strict=True)
    return replace(row, completions=tuple(replace(one, turns=of) for one, of in told))


def _publisher(
    peer_id: PeerId, held: PublisherStats | None, given: Contribution | None
) -> PublisherRow:
    """Return one publisher's row: of the node itself, and of who has gone, one part is missing."""
    row = PublisherRow(peer_id=peer_id)
    if held is not None:
        row = replace(
            row,
            own=held.own,
            groups=held.groups,
            bytes=held.bytes,
            oldest_s=_rounded(held.oldest_age_s),
            newest_s=_rounded(held.newest_age_s),
            draws=held.draws,
            received=held.stored_total,
        )
    if given is not None:
        row = replace(
            row,
            draws=given.drawn,
            received=given.contributed,
            share=round(given.share, 4),
            useful=_rounded(given.useful),
            weight=round(given.weight, 4),
            connected=given.connected,
        )
    return row


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)

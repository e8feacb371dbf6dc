"""Debug views of a node: status with buffer and trainer, the buffer, the latest rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import trio

from shoal_ipc.answers.form import MAX_NAME_CHARS, read
from shoal_ipc.answers.learning import Ledger
from shoal_ipc.answers.node import (
    MAX_ROLLOUTS,
    Buffer,
    BufferTotals,
    CompletionRow,
    Fetch,
    Rollout,
    RolloutsView,
    Status,
    TrainerView,
    TurnRow,
)
from shoal_ipc.answers.node import OutboxView as OutboxCounts
from shoal_ipc.skip_reason import skip_reason_text
from shoal_p2p.fetch.exchange import RolloutExchange
from shoal_p2p.ipc.judge_link import JudgeLink
from shoal_p2p.ipc.service import TrainerLink
from shoal_p2p.ipc.transcript_builder import WORKER_S, TranscriptBuilder
from shoal_p2p.ipc.views import CoreViews
from shoal_p2p.rollouts.outbox import Outbox
from shoal_p2p.rollouts.pool import RolloutPool
from shoal_p2p.rollouts.recent import RecentGroup, RecentRollouts
from shoal_p2p.rollouts.training_stats import TrainingStats
from shoal_p2p.swarm_node import SwarmNode
from shoal_p2p.trainer_child import ChildState, TrainerChild
from shoal_tasks.errors import TaskError
from shoal_tasks.wire_tasks import coordinates_of
from shoal_wire.types import GroupId, PeerId


class NodeViews(CoreViews):
    """Views of a node."""

    def __init__(
        self,
        member: SwarmNode,
        *,
        outbox: Outbox,
        pool: RolloutPool,
        link: TrainerLink,
        recent: RecentRollouts,
        learning: TrainingStats,
        child: TrainerChild | None,
        exchange: RolloutExchange,
        judge: JudgeLink | None = None,
    ) -> None:
        super().__init__(member)
        self._outbox = outbox
        self._pool = pool
        self._recent = recent
        self._learning = learning
        self._link = link
        self._child = child
        self._exchange = exchange
        self._judge = judge
        self._transcripts = TranscriptBuilder(member.worker, lambda: member.families)

    def known_peers(self) -> set[PeerId]:
        """Return every peer that a view may show, including publishers that are offline."""
        here = super().known_peers()
        return here | set(self._pool.buffer.counters())

    async def status(self, options: Mapping[str, Any]) -> Status:
        """The node at a glance."""
        outbox, trainer = self._outbox, self._trainer()
        counters = self._member.peer.events.counters
        return replace(
            await super().status(options),
            round=trainer.round,
            groups_published=counters.groups_published,
            groups_received=counters.groups_received,
            groups_external_used=trainer.groups_external_used or 0,
            outbox=OutboxCounts(
                unsent=outbox.num_unsent,
                batches_sent=outbox.num_batches_sent,
                batches_announced=outbox.num_batches_announced,
                batches_expired=outbox.num_batches_expired,
                batches_postponed=outbox.num_batches_postponed,
                delivery_lag_s=round(outbox.late_s, 2),
            ),
            buffer=self._buffer_totals(),
            dominant_network=self._learning.origins.dominant_network(
                self._member.peer.parts.wall_ms()
            ),
            duplicate_identity=self._exchange.duplicate_identity.found,
            intake_waiting=self._member.intake.queue_length(),
            trainer=trainer,
            judge=None if self._judge is None else self._judge.view(),
        )

    async def buffer(self, _options: Mapping[str, Any]) -> Buffer:
        """The replay buffer by publisher."""
        member = self._member
        connected = {
            one.peer_id for one in member.host.connections() if member.peer.is_of_swarm(one.peer_id)
        }
        return self._pool.view(connected)

    async def ledger(self, _options: Mapping[str, Any]) -> Ledger:
        """The publishers whose groups the trainer has trained on, and its own families."""
        return self._learning.view(self._member.peer.parts.wall_ms())

    async def fetch(self, _options: Mapping[str, Any]) -> Fetch:
        """Batches by how they arrived, outcomes of gaps, and what was served to peers."""
        return self._exchange.view()

    async def rollouts(self, options: Mapping[str, Any]) -> RolloutsView:
        """The latest groups: question, completions, sender, and reward once verified.

        Options: `limit`, `after` (a `number`), `group` (an id: only that group, if it is still
        stored), `questions` (false omits them: the task worker, which also validates, has to
        regenerate them) and `texts` (false omits the completions' texts, which may be megabytes).
        With both, games also have their turns.
        """
        if (group_id := options.get("group")) is not None:
            found = self._recent.of_id(GroupId(bytes.fromhex(str(group_id))))
        else:
            limit = max(0, min(int(options.get("limit", 10)), MAX_ROLLOUTS))
            found = self._recent.after(int(options.get("after", 0)), limit=limit)
        wanted = options.get("questions", True)
        questions = await self._questions(found) if wanted else [None] * len(found)
        with_texts = bool(options.get("texts", True))
        rows = [
            self._rollout(*pair, with_texts=with_texts)
            for pair in zip(found, questions, strict=True)
        ]
        if wanted and with_texts:
            transcripts = await self._transcripts.of([recent.group.group for recent in found])
            rows = [
                replace(row, completions=tuple(map(_with_turns, row.completions, turns)))
                for row, turns in zip(rows, transcripts, strict=True)
            ]
        if group_id is not None and wanted:
            rows = [
                replace(row, expected=await self._expected(recent))
                for recent, row in zip(found, rows, strict=True)
            ]
        return RolloutsView(rollouts=tuple(rows))

    async def _expected(self, recent: RecentGroup) -> str | None:
        """The right answer from this node's task worker; None if there is none, or not in time."""
        task = recent.group.group.task
        if task.inline is not None:
            return None
        with trio.move_on_after(WORKER_S):
            try:
                (item,) = await self._member.worker.items([coordinates_of(task)])
            except TaskError:
                return None
            return None if item.answer is None else item.answer[:MAX_NAME_CHARS]
        return None

    async def _questions(self, found: list[RecentGroup]) -> list[str | None]:
        """Return the questions: regenerated, or those that inline tasks contain."""
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
            is_local=group.publisher == self._member.peer_id,
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
            skip_reason=skip_reason_text(recent.skip_reason),
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

    def _buffer_totals(self) -> BufferTotals:
        stats = self._pool.buffer.stats(trio.current_time())
        return BufferTotals(**{one.name: getattr(stats, one.name) for one in fields(BufferTotals)})

    def _pids(self) -> dict[str, int | None]:
        child = self._child
        trainer = self._link.pid or (child.pid if child is not None else None)
        return {**super()._pids(), "trainer": trainer}

    def _trainer(self) -> TrainerView:
        """Return the trainer's own report, completed by what the node knows of its process."""
        link, child = self._link, self._child
        view = read(TrainerView, link.status, shown=False)
        if not link.connected:  # the node itself knows that it is starting
            loading = child is not None and child.state is ChildState.RUNNING
            view = replace(view, phase="loading" if loading else None, progress=None)
        state, pid = self._trainer_state(view.state), self._pids()["trainer"]
        view = replace(view, state=state, pid=pid, connected=link.connected)
        if child is None:
            return view
        if child.last_exit is not None:
            view = replace(view, last_exit=child.last_exit, last_error=child.last_error or None)
            if child.next_start_s is not None:
                view = replace(view, next_start_s=round(child.next_start_s, 3))
        return replace(view, restarts=child.restarts)

    def _trainer_state(self, reported: str) -> str:
        if self._link.connected:
            return reported or "connected"
        if self._child is None:
            return str(ChildState.DISABLED)
        if reported == ChildState.FINISHED:
            return reported  # about to end or ended, whatever its exit code
        if self._child.state is ChildState.RUNNING:
            # Alive but not on the socket: importing torch, or loading the model.
            return "loading"
        return str(self._child.state)


def _with_turns(one: CompletionRow, turns: tuple[TurnRow, ...] | None) -> CompletionRow:
    return replace(one, turns=turns)

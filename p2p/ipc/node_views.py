"""Debug views of a node: status with buffer and trainer, the buffer, the latest rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from p2p.fetch.exchange import RolloutExchange
from p2p.ipc.inspector import SCHEMA_VERSION, view
from p2p.ipc.judge_link import JudgeLink
from p2p.ipc.service import TrainerLink
from p2p.ipc.views import CoreViews
from p2p.member import Member
from p2p.rollouts.learning_ledger import LearningLedger
from p2p.rollouts.outbox import Outbox
from p2p.rollouts.pool import RolloutPool
from p2p.rollouts.recent import RecentGroup, RecentRollouts
from p2p.trainer_child import ChildState, TrainerChild
from shoal_ipc.unused import unused_says
from shoal_tasks.errors import TaskError
from shoal_tasks.wire_tasks import coordinates_of
from shoal_wire.types import GroupId, PeerId

_MAX_ROLLOUTS = 200
_EXPECTED_S = 2.0
"""For the right answer: the asker does not wait much longer."""
_MAX_EXPECTED_CHARS = 4096
_TRAINER_KEYS = (
    "model",
    "policy_version",
    "reward_sum",
    "groups_local_used",
    "groups_external_used",
    "external_drawn",
    "groups_not_shared",
    "tokens_generated",
    "last_round",
    "held_out",
    "learning",
    "paused",
    "phase",
    "progress",
)


class NodeViews(CoreViews):
    """Views of a node, as plain JSON values."""

    def __init__(
        self,
        member: Member,
        *,
        outbox: Outbox,
        pool: RolloutPool,
        recent: RecentRollouts,
        learning: LearningLedger,
        link: TrainerLink,
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

    def known_peers(self) -> set[PeerId]:
        """Return everybody whom a view may name, publishers who are away included."""
        here = super().known_peers()
        contributed = {row.peer_id for row in self._pool.contributions(here).peers}
        return here | contributed | set(self._pool.buffer.publishers())

    @view
    async def status(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The node at a glance."""
        trainer = self._link.status
        return {
            **await super().status(options),
            "round": trainer.get("round", 0),
            "groups_published": self._pool.groups_published,
            "groups_received": self._pool.groups_received,
            "groups_external_used": trainer.get("groups_external_used", 0),
            "outbox": {
                "unsent": self._outbox.num_unsent,
                "batches_sent": self._outbox.num_batches_sent,
                "batches_announced": self._outbox.num_batches_announced,
                "batches_expired": self._outbox.num_batches_expired,
                "batches_put_off": self._outbox.num_batches_put_off,
            },
            "buffer": self._buffer_totals(),
            "one_network": self._learning.origins.one_network(self._member.peer.parts.wall_ms()),
            "identity_shared": self._exchange.twins.found,
            "intake_waiting": self._member.intake.queue_length(),
            "trainer": self._trainer(),
            "judge": None if self._judge is None else self._judge.view(),
        }

    @view
    async def buffer(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """The replay buffer, by publisher."""
        stats = self._pool.buffer.stats(trio.current_time())
        return {
            "schema_version": SCHEMA_VERSION,
            **self._buffer_totals(),
            "publishers": [
                {
                    "peer_id": row.peer_id,
                    "own": row.own,
                    "groups": row.groups,
                    "bytes": row.bytes,
                    "oldest_s": _rounded(row.oldest_age_s),
                    "newest_s": _rounded(row.newest_age_s),
                    "draws": row.draws,
                    "received": row.stored_total,
                }
                for row in stats.per_publisher
            ],
        }

    @view
    async def contributions(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """Draws against contributions, by peer and of this node itself."""
        connected = {
            connection.peer_id
            for connection in self._member.host.connections()
            if self._member.peer.is_of_swarm(connection.peer_id)
        }
        found = self._pool.contributions(connected)
        return {
            "schema_version": SCHEMA_VERSION,
            "own": {
                "contributed": found.own_contributed,
                "drawn": found.own_drawn,
                "trained": self._link.status.get("groups_external_used", 0),
                "ratio": _rounded(found.own_ratio),
            },
            "silent": found.num_silent,
            "peers": [
                {
                    "peer_id": row.peer_id,
                    "contributed": row.contributed,
                    "share": round(row.share, 4),
                    "drawn": row.drawn,
                    "useful": _rounded(row.useful),
                    "weight": round(row.weight, 4),
                    "connected": row.connected,
                }
                for row in found.peers
            ],
        }

    @view
    async def ledger(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """From whom the trainer has learnt, and its own families."""
        now_ms = self._member.peer.parts.wall_ms()
        return {"schema_version": SCHEMA_VERSION, **self._learning.view(now_ms)}

    @view
    async def fetch(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """How batches came, what became of gaps, and what was given to others."""
        return {"schema_version": SCHEMA_VERSION, **self._exchange.view()}

    @view
    async def rollouts(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The latest groups: question, completions, sender, and reward once verified.

        Options: `limit`, `after` (a `number`), `group` (an id: that one alone, if it is still
        kept), `questions` (false leaves them out: they have to be regenerated by the task worker,
        which validation needs too) and `texts` (false leaves out what was answered, which may be
        megabytes).
        """
        if (group_id := options.get("group")) is not None:
            found = self._recent.of_id(GroupId(bytes.fromhex(str(group_id))))
        else:
            limit = max(0, min(int(options.get("limit", 10)), _MAX_ROLLOUTS))
            found = self._recent.after(int(options.get("after", 0)), limit=limit)
        wanted = options.get("questions", True)
        questions = await self._questions(found) if wanted else [None] * len(found)
        rows = [
            self._rollout(recent, question, with_texts=bool(options.get("texts", True)))
            for recent, question in zip(found, questions, strict=True)
        ]
        if group_id is not None and wanted:
            for recent, row in zip(found, rows, strict=True):
                row["expected"] = await self._expected(recent)
        return {"schema_version": SCHEMA_VERSION, "rollouts": rows}

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

    def _rollout(
        self, recent: RecentGroup, question: str | None, *, with_texts: bool
    ) -> dict[str, Any]:
        group = recent.group
        rewards = recent.rewards
        return {
            "number": recent.number,
            "group_id": group.group_id.hex(),
            "publisher": group.publisher,
            "own": group.publisher == self._member.peer_id,
            "round": group.round,
            "received_ms": recent.received_ms,
            "age_s": round((self._member.peer.parts.wall_ms() - group.created_ms) / 1000, 3),
            "model": group.policy.model_name,
            "policy_version": group.policy.policy_version,
            "family": group.group.task.family,
            "seed": group.group.task.seed,
            "index": group.group.task.index,
            "question": question,
            "reward": None if rewards is None else sum(rewards) / max(1, len(rewards)),
            "used": recent.used,
            "why_unused": unused_says(recent.why_unused),
            "completions": [
                {
                    **({"text": completion.text} if with_texts else {}),
                    "tokens": completion.num_tokens,
                    "finish_reason": completion.finish_reason.value,
                    "reward": rewards[i] if rewards is not None and i < len(rewards) else None,
                }
                for i, completion in enumerate(group.group.completions)
            ],
        }

    def _pids(self) -> dict[str, int | None]:
        child = self._child
        trainer = self._link.pid or (child.pid if child is not None else None)
        return {**super()._pids(), "trainer": trainer}

    def _buffer_totals(self) -> dict[str, Any]:
        stats = self._pool.buffer.stats(trio.current_time())
        return {
            "groups": stats.groups,
            "bytes": stats.bytes,
            "capacity_groups": stats.capacity_groups,
            "capacity_bytes": stats.capacity_bytes,
            "evicted": stats.evicted,
            "dropped": {str(cause): count for cause, count in stats.dropped.items()},
            "own_groups": stats.own_groups,
            "own_bytes": stats.own_bytes,
            "leased": stats.leased,
            "consumed_total": stats.consumed_total,
            "stored_total": stats.stored_total,
            "draws_total": stats.draws_total,
        }

    def _trainer(self) -> dict[str, Any]:
        reported, child = self._link.status, self._child
        return {
            "state": self._trainer_state(),
            "pid": self._pids()["trainer"],
            "round": reported.get("round", 0),
            "reward_local": reported.get("reward_local"),
            "reward_start": reported.get("reward_start"),
            "restarts": child.restarts if child is not None else 0,
            "connected": self._link.connected,
            **{key: reported.get(key) for key in _TRAINER_KEYS},
            **self._phase(),
            **self._last_words(),
        }

    def _phase(self) -> dict[str, Any]:
        """What the trainer says that it does; that it is being started is seen from here."""
        if self._link.connected:
            return {}
        loading = self._child is not None and self._child.state is ChildState.RUNNING
        return {"phase": "loading" if loading else None, "progress": None}

    def _last_words(self) -> dict[str, Any]:
        """How the last trainer that failed ended, and when there is another."""
        child = self._child
        if child is None or child.last_exit is None:
            return {"last_exit": None, "last_error": None, "next_start_s": None}
        return {
            "last_exit": child.last_exit,
            "last_error": child.last_error or None,
            "next_start_s": _rounded(child.next_start_s),
        }

    def _trainer_state(self) -> str:
        if self._link.connected:
            return str(self._link.status.get("state", "connected"))
        if self._child is None:
            return str(ChildState.DISABLED)
        last = self._link.status.get("state")
        if last == ChildState.FINISHED:
            return str(last)  # about to end, or ended, whatever ended it
        if self._child.state is ChildState.RUNNING:
            # Alive but not on the socket: importing torch, or loading the model.
            return "loading"
        return str(self._child.state)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)

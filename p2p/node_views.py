"""Debug views of a node: status with buffer and trainer, the buffer, the latest rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from p2p.outbox import Outbox
from p2p.peer_core import PeerCore, wall_ms
from p2p.recent import RecentGroup, RecentRollouts
from p2p.rollout_pool import RolloutPool
from p2p.service import TrainerLink
from p2p.trainer_child import ChildState, TrainerChild
from p2p.validation import group_coordinates
from p2p.view_types import View
from p2p.views import SCHEMA_VERSION, CoreViews
from shoal_tasks.errors import TaskError

_MAX_ROLLOUTS = 200
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
)


class NodeViews(CoreViews):
    """Views of a node, as plain JSON values."""

    def __init__(
        self,
        core: PeerCore,
        *,
        outbox: Outbox,
        pool: RolloutPool,
        recent: RecentRollouts,
        link: TrainerLink,
        child: TrainerChild | None,
    ) -> None:
        super().__init__(core)
        self._outbox = outbox
        self._pool = pool
        self._recent = recent
        self._link = link
        self._child = child

    def by_name(self) -> dict[str, View]:
        """Return the views by the names under which the CLI asks for them."""
        return {**super().by_name(), "buffer": self.buffer, "rollouts": self.rollouts}

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
                "batches_expired": self._outbox.num_batches_expired,
            },
            "buffer": self._buffer_totals(),
            "intake_waiting": self._core.intake.queue_length(),
            "trainer": self._trainer(),
        }

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

    async def rollouts(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The latest groups: question, completions, sender, and reward once verified."""
        limit = max(0, min(int(options.get("limit", 10)), _MAX_ROLLOUTS))
        found = self._recent.after(int(options.get("after", 0)), limit=limit)
        questions = await self._questions(found)
        return {
            "schema_version": SCHEMA_VERSION,
            "rollouts": [
                self._rollout(recent, question)
                for recent, question in zip(found, questions, strict=True)
            ],
        }

    async def _questions(self, found: list[RecentGroup]) -> list[str | None]:
        """Regenerate questions; an inline task carries its own."""
        tasks = [group_coordinates(r.group.group) for r in found if not r.group.group.task.inline]
        try:
            made = iter(await self._core.worker.questions(tasks) if tasks else ())
        except TaskError:
            return [None] * len(found)
        inline = [recent.group.group.task.inline for recent in found]
        return [next(made) if task is None else task.question for task in inline]

    def _rollout(self, recent: RecentGroup, question: str | None) -> dict[str, Any]:
        group = recent.group
        rewards = recent.rewards
        return {
            "number": recent.number,
            "group_id": group.group_id.hex(),
            "publisher": group.publisher,
            "own": group.publisher == self._core.peer_id,
            "round": group.round,
            "age_s": round((wall_ms() - group.created_ms) / 1000, 3),
            "model": group.policy.model_name,
            "policy_version": group.policy.policy_version,
            "family": group.group.task.family,
            "seed": group.group.task.seed,
            "index": group.group.task.index,
            "question": question,
            "reward": None if rewards is None else sum(rewards) / max(1, len(rewards)),
            "completions": [
                {
                    "text": completion.text,
                    "tokens": completion.num_tokens,
                    "finish_reason": completion.finish_reason.value,
                    "reward": rewards[i] if rewards is not None and i < len(rewards) else None,
                }
                for i, completion in enumerate(group.group.completions)
            ],
        }

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
            "pid": self._link.pid or (child.pid if child is not None else None),
            "round": reported.get("round", 0),
            "reward_local": reported.get("reward_local"),
            "reward_start": reported.get("reward_start"),
            "restarts": child.restarts if child is not None else 0,
            "connected": self._link.connected,
            **{key: reported.get(key) for key in _TRAINER_KEYS},
        }

    def _trainer_state(self) -> str:
        if self._link.connected:
            return str(self._link.status.get("state", "connected"))
        if self._child is None:
            return str(ChildState.DISABLED)
        # Alive but not on the socket: it is importing torch or loading the model.
        return "loading" if self._child.state is ChildState.RUNNING else str(self._child.state)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)

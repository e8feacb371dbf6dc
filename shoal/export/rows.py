"""Rollouts as rows of a data set: one per group, with question, rewards and provenance.

    envelope ─▶ signature checked ─▶ groups ─▶ questions regenerated ─▶ answers scored ─▶ rows

Rewards are computed here at the time of export; they are never sent between peers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from shoal_p2p.intake.validation import Rejected, reopen_batch
from shoal_p2p.rollouts.groups import published_groups
from shoal_p2p.store.archive import Archived
from shoal_tasks.prompts import messages_for
from shoal_tasks.spec import AnswerFormat, FamilySpec
from shoal_tasks.turns import split_messages
from shoal_tasks.types import GroupRequest, PlayRequest
from shoal_tasks.wire_tasks import coordinates_of, inline_reward
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.limits import MAX_BATCH_BYTES
from shoal_wire.types import PublishedGroup, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An archived group."""

    group: PublishedGroup
    own: bool
    received_ms: int
    sequence: int


@dataclass(slots=True)
class Tally:
    """Counts of skipped batches and of rows without rewards."""

    damaged: int = 0
    """Batches with an invalid signature or content."""
    unknown: int = 0
    """Groups of families that this installation cannot regenerate: no question, no rewards."""


def items_of(archived: Archived, tally: Tally) -> list[Item]:
    """Return a batch's groups; none if its bytes are damaged."""
    try:
        signed = reopen_batch(archived.envelope, max_bytes=MAX_BATCH_BYTES)
    except Rejected:
        tally.damaged += 1
        return []
    return [
        Item(
            group=group,
            own=archived.own,
            received_ms=archived.received_ms,
            sequence=signed.batch.sequence,
        )
        for group in published_groups(signed)
    ]


class RowMaker:
    """Turns groups into rows with a task worker's help."""

    def __init__(
        self, worker: SyncTaskWorker | None, families: Sequence[FamilySpec], tally: Tally
    ) -> None:
        """Make rows; if `worker` is None, without questions and rewards."""
        self._worker = worker
        self._known = {(spec.name, spec.digest): spec for spec in families}
        self._tally = tally

    def rows(self, items: Sequence[Item]) -> Iterator[dict[str, Any]]:
        """Yield one row per group, in order.

        Raises:
            TaskError: the task worker failed.
        """
        known = [item for item in items if self._regenerable(item.group.group.task)]
        worker = self._worker
        if worker is not None and known:
            made = iter(worker.items([coordinates_of(item.group.group.task) for item in known]))
            scores = iter(worker.score_groups([_group_request(item) for item in known]))
            games = [item for item in known if self._spec(item).is_environment]
            plays = iter(worker.play([one for item in games for one in _play_requests(item)]))
        for item in items:
            task, completions = item.group.group.task, item.group.group.completions
            if (inline := task.inline) is not None:
                rewards = [inline_reward(inline, c.text, c.finish_reason) for c in completions]
                row = _row(item, question=inline.question, answer=inline.answer, rewards=rewards)
                yield {**row, "prompt": messages_for(inline.question, tagged=False)}
            elif not self._regenerable(task):
                self._tally.unknown += 1
                yield _row(item, question=None, answer=None, rewards=None)
            else:
                regenerated, spec = next(made), self._spec(item)
                rewards = [one.reward for one in next(scores)]
                row = _row(
                    item, question=regenerated.question, answer=regenerated.answer, rewards=rewards
                )
                tagged = spec.answer_format is AnswerFormat.TAGGED
                row["prompt"] = messages_for(
                    regenerated.question, tagged=tagged, system=spec.system
                )
                if spec.is_environment:
                    row["messages"] = [
                        _conversation(
                            regenerated.question, spec.system, one, next(plays).observations
                        )
                        for one in _play_requests(item)
                    ]
                yield row

    def _regenerable(self, task: Task) -> bool:
        known = (task.family, task.config_digest) in self._known
        return self._worker is not None and task.inline is None and known

    def _spec(self, item: Item) -> FamilySpec:
        task = item.group.group.task
        return self._known[task.family, task.config_digest]


def _group_request(item: Item) -> GroupRequest:
    return GroupRequest(
        task=coordinates_of(item.group.group.task),
        answers=tuple((one.text, one.finish_reason) for one in item.group.group.completions),
    )


def _play_requests(item: Item) -> list[PlayRequest]:
    task = coordinates_of(item.group.group.task)
    return [
        PlayRequest(task=task, messages=split_messages(one.text))
        for one in item.group.group.completions
    ]


def _conversation(
    question: str, system: str, played: PlayRequest, observations: Sequence[str]
) -> list[dict[str, str]]:
    """Replay a game and return it as a conversation, as chat models are trained on."""
    turns = messages_for(question, tagged=False, system=system)
    for message, answer in zip_longest(played.messages, observations):
        turns.append({"role": "assistant", "content": message})
        if answer is not None:
            turns.append({"role": "user", "content": answer})
    return turns


def _row(
    item: Item, *, question: str | None, answer: str | None, rewards: list[float] | None
) -> dict[str, Any]:
    """The columns, in the order of docs/export.md."""
    group = item.group
    task, completions = group.group.task, group.group.completions
    return {
        "question": question,
        "answer": answer,
        "prompt": None,
        "completions": [completion.text for completion in completions],
        "messages": None,
        "rewards": rewards,
        "finish_reasons": [str(completion.finish_reason) for completion in completions],
        "num_tokens": [completion.num_tokens for completion in completions],
        "family": task.family,
        "config_digest": task.config_digest.hex(),
        "seed": task.seed,
        "index": task.index,
        "verifier": task.verifier,
        "verifier_version": task.verifier_version,
        "is_local": item.own,
        "publisher": str(group.publisher),
        "model": group.policy.model_name,
        "policy_version": group.policy.policy_version,
        "round": group.round,
        "temperature": group.sampling.temperature,
        "top_p": group.sampling.top_p,
        "created_ms": group.created_ms,
        "received_ms": item.received_ms,
        "sequence": item.sequence,
        "batch_id": group.batch_id.hex(),
        "group_id": group.group_id.hex(),
    }

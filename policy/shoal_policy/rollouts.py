"""Own completions as rollout groups: what of a round may be shared, and under which key.

SAPO, Algorithm 1, step 3: groups are shared before rewards are computed, as decoded text.
No tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from shoal_base.files import expanded
from shoal_ipc import messages as m
from shoal_settings.schema import Settings
from shoal_tasks.types import TaskCoordinates
from shoal_tasks.wire_tasks import coordinates_of
from shoal_wire import digests
from shoal_wire.bundles import bundles
from shoal_wire.limits import MAX_NAME_BYTES
from shoal_wire.manifest import SwarmRules
from shoal_wire.rules import check_completion
from shoal_wire.types import (
    Completion,
    FinishReason,
    GroupId,
    PolicyInfo,
    RolloutGroup,
    SamplingParams,
    Task,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A task with its text, ready to be answered."""

    task: Task
    text: str
    tagged: bool
    """The verifier looks for the answer between ``<answer>`` tags."""
    system: str = ""
    """The family's own system turn; empty for none."""
    max_turns: int = 0
    """Most messages of the policy, where the text is a game's first observation; 0 for a question
    that is answered once."""
    is_code: bool = False
    """True if the answer is a program: what stands around its block of code is not scored."""

    @property
    def coordinates(self) -> TaskCoordinates:
        """The coordinates by which the task worker knows the task."""
        return coordinates_of(self.task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One own completion with the ids that were sampled."""

    ids: tuple[int, ...]
    """Token ids. A game's have the environment's between those of the policy's messages."""
    text: str
    """The text that was said; for a game, its messages (`shoal_tasks.turns`)."""
    finish_reason: FinishReason
    logprobs: tuple[float, ...]
    """One for each token that the policy said."""
    said: tuple[int, ...] | None = None
    """Places in `ids` of what the policy said in a game; None where it said all."""
    counted: int | None = None
    """Tokens by the count of another program that generated it; its ids are then not the
    generator's, and may be empty."""

    @property
    def num_tokens(self) -> int:
        """Tokens generated."""
        return self.num_said if self.counted is None else self.counted

    @property
    def num_said(self) -> int:
        """Tokens of `ids` that the policy said."""
        return len(self.ids if self.said is None else self.said)


class Origin(StrEnum):
    """The maker of a node's own answers."""

    POLICY = "policy"
    """The policy as it is, in this process or in those that share its work."""
    FOLLOWER = "follower"
    """A server that holds the policy, perhaps of an earlier version and in other arithmetic."""
    ANOTHER = "another"
    """A model of the server's own. The policy treats its text as external text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGroup:
    """A question with this node's L answers."""

    question: Question
    answers: tuple[Answer, ...]
    origin: Origin = Origin.POLICY
    author: PolicyInfo | None = None
    """The model and version that made them, where that is not the policy as it is."""


def sampling_params(settings: Settings) -> SamplingParams:
    """Return how answers are drawn, as settings have it."""
    return SamplingParams(
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=0,
        max_new_tokens=settings.max_new_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGroup:
    """The part of an own group that peers are given, under the id by which they know it."""

    group: RolloutGroup
    group_id: GroupId
    answers: tuple[int, ...]
    """Indices, in the own group, of the answers that are in it."""


def shareable(group: OwnGroup, rules: SwarmRules) -> SharedGroup | None:
    """Return what of `group` peers accept, or None if too little is left.

    A policy may end at once or emit a NUL: such completions are trained on here but break the
    contract, and one of them would get the whole batch rejected.
    """
    fit = [
        index
        for index, answer in enumerate(group.answers)
        if check_completion(_completion(answer), rules) is None
    ][: rules.max_completions]
    if len(fit) < rules.min_completions:
        return None
    completions = tuple(_completion(group.answers[index]) for index in fit)
    shared = RolloutGroup(task=group.question.task, completions=completions)
    return SharedGroup(group=shared, group_id=digests.group_id(shared), answers=tuple(fit))


def _completion(answer: Answer) -> Completion:
    return Completion(
        text=answer.text, num_tokens=answer.num_tokens, finish_reason=answer.finish_reason
    )


def num_answer_bytes(group: RolloutGroup) -> int:
    """Return what the texts of a group's answers add to a batch."""
    return sum(len(completion.text.encode()) for completion in group.completions)


def public_model_name(name: str) -> str:
    """Return what peers are told of a model: a hub name as it is, of a path its last part only.

    A path says more about this machine than anybody needs, and may be longer than a name can be.
    """
    path = expanded(name)
    is_path = path.is_dir() or (path.suffix.lower() == ".gguf" and path.is_file())
    shown = path.resolve().name if is_path else name
    return shown.replace("\0", "").encode()[:MAX_NAME_BYTES].decode(errors="ignore")


def batch_key(round_number: int, ids: Sequence[GroupId]) -> bytes:
    """Return the key that names a batch for ever, from the ids of its groups.

    It follows from the content: a round that is repeated after a crash with the same outcome is
    the same batch, one with another outcome is another.
    """
    return hashlib.sha256(round_number.to_bytes(8, "big") + b"".join(ids)).digest()[:16]


def publish_requests(
    shared: Sequence[SharedGroup],
    *,
    round_number: int,
    policy: PolicyInfo,
    sampling: SamplingParams,
) -> list[m.Publish]:
    """Return the batches in which a round's groups are shared, ready for the node."""
    ids = iter([one.group_id for one in shared])
    return [
        m.Publish(
            client_key=batch_key(round_number, list(islice(ids, len(batch)))),
            round=round_number,
            policy=policy,
            sampling=sampling,
            groups=batch,
        )
        for batch in bundles([one.group for one in shared], num_answer_bytes)
    ]

"""Own completions as rollout groups: the shareable part of a round, and the keys of batches.

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
    """True if the verifier reads the answer between ``<answer>`` tags."""
    system: str = ""
    """The family's system message; empty for none."""
    max_turns: int = 0
    """Maximum number of policy messages if the text is a game's first observation; 0 for a question
    with a single answer."""
    is_code: bool = False
    """True if the answer is a program: text around its code block is not scored."""

    @property
    def coordinates(self) -> TaskCoordinates:
        """Return the coordinates by which the task worker knows the task."""
        return coordinates_of(self.task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One own completion with its sampled ids."""

    ids: tuple[int, ...]
    """Token ids. In a game, with the environment's between those of the policy's messages."""
    text: str
    """The completion's text; for a game, its messages (`shoal_tasks.turns`)."""
    finish_reason: FinishReason
    logprobs: tuple[float, ...]
    """One value for each token that the policy generated."""
    completion_positions: tuple[int, ...] | None = None
    """Positions in `ids` of the policy's tokens in a game; None if it generated all."""
    counted: int | None = None
    """Token count reported by another program that generated it; `ids` then use this tokenizer, and
    may be empty."""

    @property
    def num_tokens(self) -> int:
        """Return the number of generated tokens."""
        return self.num_completion_tokens if self.counted is None else self.counted

    @property
    def num_completion_tokens(self) -> int:
        """Return the number of `ids` that the policy generated."""
        return len(self.ids if self.completion_positions is None else self.completion_positions)


class Origin(StrEnum):
    """The model that generated a node's own answers."""

    POLICY = "policy"
    """The current policy, in this process or in ranks that share its work."""
    FOLLOWER = "follower"
    """A server with the policy's weights, perhaps an earlier version and another precision."""
    ANOTHER = "another"
    """Another model of a server. Its text counts as external."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGroup:
    """A question with this node's L answers."""

    question: Question
    answers: tuple[Answer, ...]
    origin: Origin = Origin.POLICY
    author: PolicyInfo | None = None
    """The model and version that generated them, if not the current policy."""


def sampling_params(settings: Settings) -> SamplingParams:
    """Return the sampling parameters of settings."""
    return SamplingParams(
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=0,
        max_new_tokens=settings.max_new_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGroup:
    """The part of an own group that is sent to peers, with its group id."""

    group: RolloutGroup
    group_id: GroupId
    answers: tuple[int, ...]
    """Indices of its answers in the own group."""


def shareable(group: OwnGroup, rules: SwarmRules) -> SharedGroup | None:
    """Return the part of `group` that peers accept; None if too little is left.

    A policy may stop at once or emit a NUL. Such completions are trained on here, but violate the
    protocol, and one of them would get the whole batch rejected.
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
    """Return the size of a group's answer texts in bytes."""
    return sum(len(completion.text.encode()) for completion in group.completions)


def public_model_name(name: str) -> str:
    """Return the model name that peers see: a hub name, or only the last part of a path.

    A path reveals this machine's directories, and may be longer than a name is allowed to be.
    """
    path = expanded(name)
    is_path = path.is_dir() or (path.suffix.lower() == ".gguf" and path.is_file())
    shown = path.resolve().name if is_path else name
    return shown.replace("\0", "").encode()[:MAX_NAME_BYTES].decode(errors="ignore")


def batch_key(round_number: int, ids: Sequence[GroupId]) -> bytes:
    """Return a batch's permanent key, from the ids of its groups.

    It depends on the content: a round repeated after a crash gives the same batch if its result is
    the same, and a different one otherwise.
    """
    return hashlib.sha256(round_number.to_bytes(8, "big") + b"".join(ids)).digest()[:16]


def publish_requests(
    shared: Sequence[SharedGroup],
    *,
    round_number: int,
    policy: PolicyInfo,
    sampling: SamplingParams,
) -> list[m.Publish]:
    """Return a round's groups as batches for the node."""
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

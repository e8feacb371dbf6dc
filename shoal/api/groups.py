"""The values of the Python API: a group to share, a group of another node on lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal_policy.rollouts import Answer, OwnGroup, Question
from shoal_tasks.hand_made import completion_of
from shoal_wire.manifest import SwarmRules
from shoal_wire.rules import check_completion
from shoal_wire.types import Completion, GroupId, PeerId, PublishedGroup


class SwarmError(Exception):
    """A request that cannot be met; the text is one line and says what to do."""


@dataclass(frozen=True, slots=True)
class Group:
    """A question with the answers of one generator."""

    question: Question
    completions: Sequence[str | Completion]
    """An answer given as a string counts as ended by its generator, not cut at a limit."""

    @property
    def answers(self) -> tuple[Completion, ...]:
        """The answers as completions of the wire format."""
        return tuple(
            completion_of(one) if isinstance(one, str) else one for one in self.completions
        )


@dataclass(frozen=True, slots=True)
class LeasedGroup:
    """A leased group of another node: not sampled again until it is acknowledged or released."""

    question: Question
    source: PublishedGroup
    """The group as it was published; policy, sampling and time are the publisher's claims."""

    @property
    def id(self) -> GroupId:
        """The group's id, a hash of its content."""
        return self.source.group_id

    @property
    def publisher(self) -> PeerId:
        """The peer that signed the group."""
        return self.source.publisher

    @property
    def answers(self) -> tuple[Completion, ...]:
        """The completions."""
        return self.source.group.completions


def own_group(number: int, group: Group, rules: SwarmRules) -> OwnGroup:
    """Return a group in the trainer's form, if peers would accept it; `number` is its position.

    Raises:
        SwarmError: peers would reject it.
    """
    answers = group.answers
    if not rules.min_completions <= len(answers) <= rules.max_completions:
        raise SwarmError(
            f"group {number} has {len(answers)} completions: this swarm takes "
            f"{rules.min_completions} to {rules.max_completions} for a question"
        )
    for completion in answers:
        fault = check_completion(completion, rules)
        if fault is not None:
            raise SwarmError(f"group {number}: peers would refuse a completion: {fault}")
    return OwnGroup(question=group.question, answers=tuple(_answer(one) for one in answers))


def _answer(completion: Completion) -> Answer:
    return Answer(
        ids=(),
        text=completion.text,
        finish_reason=completion.finish_reason,
        logprobs=(),
        counted=completion.num_tokens,
    )

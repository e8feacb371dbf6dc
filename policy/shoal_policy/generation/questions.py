"""Refuses questions that leave a policy no room for an answer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache

from jinja2 import TemplateError

from shoal_base.bounded import REMEMBERED
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.prompting import prompt_ids
from shoal_policy.rollouts import Question
from shoal_policy.tasks import TaskSource
from shoal_tasks.errors import TaskError

log = logging.getLogger(__name__)

Prompt = list[int]


@contextlib.contextmanager
def template_refusals(policy: Policy) -> Iterator[None]:
    """Within, a chat template that takes no question is a ModelError, for the user."""
    try:
        yield
    except TemplateError as error:
        raise ModelError(
            f"cannot use model {policy.name!r}: its chat template refuses a question: {error}"
        ) from error


def prompt_of(policy: Policy, question: Question) -> Prompt | None:
    """Return a question's token ids; None where no token of an answer would fit behind them.

    Raises ModelError when the model's chat template takes no question.
    """
    with template_refusals(policy):
        ids = prompt_ids(policy, question)
    return ids if len(ids) < policy.max_positions else None


def askable(policy: Policy, questions: Sequence[Question]) -> tuple[list[Question], list[Prompt]]:
    """Return the questions that are not too long for a policy, and their prompts.

    Says of the others once a family that they are passed over.
    """
    found = [(question, prompt_of(policy, question)) for question in questions]
    for question, prompt in found:
        if prompt is None:
            _say_passed_over(question.task.family, policy.max_positions, policy.name)
    kept = [(question, prompt) for question, prompt in found if prompt is not None]
    return [question for question, _ in kept], [prompt for _, prompt in kept]


@lru_cache(maxsize=REMEMBERED)
def _say_passed_over(family: str, most: int, model: str) -> None:
    log.warning(
        "questions of %s are passed over: they have no fewer tokens than the %d that "
        "model %s can hold",
        *(family, most, model),
    )


def refuse_unanswerable(policy: Policy, tasks: TaskSource) -> None:
    """Raise ModelError when a policy can be asked none of a swarm's questions, or sees none.

    Looks at one held-out question of each family, which training never draws.
    """
    try:
        questions = tasks.held_out(1)
    except TaskError as error:
        log.debug("the questions are not looked at: %s", error)
        return
    prompts = [prompt_of(policy, question) for question in questions]
    if prompts and all(prompt is None for prompt in prompts):
        raise ModelError(
            f"model {policy.name!r} holds {policy.max_positions} tokens, and every question of "
            "this swarm has more: choose other --tasks, or a model with a longer context"
        )
    different = len({question.text for question in questions}) > 1
    if different and all(prompt == prompts[0] for prompt in prompts):
        raise ModelError(
            f"cannot use model {policy.name!r}: it is asked every question in the same words: "
            "its chat template, or its tokenizer, leaves the question out"
        )

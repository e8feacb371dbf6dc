"""Skips questions that leave a policy no positions for an answer."""

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
    """Within, a chat template that rejects a question raises ModelError for the user."""
    try:
        yield
    except TemplateError as error:
        raise ModelError(
            f"cannot use model {policy.name!r}: its chat template rejects a question: {error}"
        ) from error


def build_prompt(policy: Policy, question: Question) -> Prompt | None:
    """Return a question's token ids; None if no token of an answer would fit after them.

    Raises ModelError if the model's chat template rejects the question.
    """
    with template_refusals(policy):
        ids = prompt_ids(policy, question)
    return ids if len(ids) < policy.max_positions else None


def fit_prompts(
    policy: Policy, questions: Sequence[Question]
) -> tuple[list[Question], list[Prompt]]:
    """Return the questions that fit a policy, and their prompts.

    Warns once per family about skipped questions.
    """
    found = [(question, build_prompt(policy, question)) for question in questions]
    for question, prompt in found:
        if prompt is None:
            _warn_skipped(question.task.family, policy.max_positions, policy.name)
    kept = [(question, prompt) for question, prompt in found if prompt is not None]
    return [question for question, _ in kept], [prompt for _, prompt in kept]


@lru_cache(maxsize=REMEMBERED)
def _warn_skipped(family: str, most: int, model: str) -> None:
    log.warning(
        "questions of %s are skipped: they have at least as many tokens as the %d that "
        "model %s can hold",
        *(family, most, model),
    )


def check_prompts_fit(policy: Policy, tasks: TaskSource) -> None:
    """Raise ModelError if none of a swarm's questions fits, or if all give the same prompt.

    Uses one held-out question of each family, which training never samples.
    """
    try:
        questions = tasks.held_out(1)
    except TaskError as error:
        log.debug("questions not checked: %s", error)
        return
    prompts = [build_prompt(policy, question) for question in questions]
    if prompts and all(prompt is None for prompt in prompts):
        raise ModelError(
            f"model {policy.name!r} holds {policy.max_positions} tokens, and every question of "
            "this swarm has more: choose other --tasks, or a model with a longer context"
        )
    different = len({question.text for question in questions}) > 1
    if different and all(prompt == prompts[0] for prompt in prompts):
        raise ModelError(
            f"cannot use model {policy.name!r}: every question gives the same prompt: "
            "its chat template or tokenizer drops the question"
        )

"""The exact prompt of a model for a question, for `shoal tasks`. Loads only the tokenizer."""

from __future__ import annotations

import argparse
from typing import Any

from shoal_base.extras import missing_for_policy
from shoal_base.node_folders import folders_with, model_in
from shoal_settings.early import refusal_of_model
from shoal_settings.exits import fail
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.sync import SyncTaskWorker


def refuse_model(model: str) -> None:
    """Raise UsageExit if no tokenizer has this name, before a question is generated."""
    if (why := missing_for_policy() or refusal_of_model(model)) is not None:
        raise fail("tasks", why)


def prompt_of(arguments: argparse.Namespace, spec: FamilySpec, question: str) -> dict[str, Any]:
    """Return a question's prompt for `arguments.model`, with `arguments.shots` worked examples.

    Raises UsageExit where the model cannot be used.
    """
    # Late: torch takes seconds to import, and only this view needs it.
    from shoal_policy.few_shot import AUTO, CHOICE_FILE, EXTRA_EXAMPLES, load_choice
    from shoal_policy.model.loading import ModelError, PromptFormat, load_tokenizer
    from shoal_policy.model.prompting import encode_prompt
    from shoal_policy.tasks import TaskSource

    try:
        reader = load_tokenizer(arguments.model, prompt=arguments.prompt)
    except ModelError as error:
        raise fail("tasks", str(error)) from None
    tagged = spec.is_tagged
    count = arguments.shots
    if count is None:
        folders = [
            one for one in folders_with(CHOICE_FILE) if model_in(one) in (None, arguments.model)
        ]
        chosen = [load_choice(one, spec) for one in folders]
        count = next((one for one in chosen if one is not None), AUTO)
    if reader.prompt_format is PromptFormat.TINY:
        count = 0
    with SyncTaskWorker([spec]) as worker:
        found = TaskSource(worker, [spec]).examples(count + EXTRA_EXAMPLES)[spec.name]
    examples = [one for one in found if one.question != question][:count]
    ids = encode_prompt(reader, question, tagged=tagged, system=spec.system, examples=examples)
    text = reader.tokenizer.decode(
        ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return {"model": arguments.model, "shots": len(examples), "tokens": len(ids), "text": text}

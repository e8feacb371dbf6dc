"""A manifest's rules for a batch: pure checks, each a row of the verdict table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shoal_wire import limits
from shoal_wire.manifest import Manifest, SwarmRules
from shoal_wire.types import Completion, Digest, RolloutBatch, RolloutGroup, Task
from shoal_wire.verdict import Reason

_ABSURD_FUTURE_MS = 86_400_000
"""A day ahead is no honest clock error; a smaller difference is ignored, not rejected."""

_MAX_TEMPERATURE = 1000.0
_MAX_LOGPROB = 1e-3
"""Log-probabilities are at most 0, plus a half float's rounding error."""

_HELD_OUT_BELOW = b"\x20"
"""First byte of the digests of held-out questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """A manifest with its families' digests, ready to check batches."""

    manifest: Manifest
    config_digests: Mapping[str, Digest]
    """Family name to the 16-byte digest of its configuration."""


def check_batch(batch: RolloutBatch, rules: BatchRules, *, now_ms: int) -> Reason | None:
    """Return why `batch` is not acceptable, or None; cheap checks first.

    Not checked here: signature (`envelope`), question digests (they need the task worker),
    duplicates and quotas (they need state).
    """
    if batch.swarm_digest != rules.manifest.digest:
        return Reason.WRONG_SWARM
    reason = check_time(batch.created_ms, rules.manifest.rules, now_ms)
    if reason is not None:
        return reason
    if not (
        batch.previous_sequence < batch.sequence < limits.MAX_SEQUENCE
        and batch.round < limits.MAX_ROUND
        and batch.policy.policy_version < limits.MAX_ROUND
    ):
        return Reason.BAD_FIELD
    sampling = batch.sampling
    if not (
        math.isfinite(sampling.temperature)
        and 0 <= sampling.temperature <= _MAX_TEMPERATURE
        and math.isfinite(sampling.top_p)
        and 0 <= sampling.top_p <= 1
    ):
        return Reason.BAD_FIELD
    return _check_name(batch.policy.model_name) or _check_groups(batch.groups, rules)


def check_time(created_ms: int, rules: SwarmRules, now_ms: int) -> Reason | None:
    """Return why a batch of that time is too old or from the future; None if it is neither."""
    age_ms = now_ms - created_ms
    if age_ms > rules.max_age_seconds * 1000:
        return Reason.TOO_OLD
    if -age_ms > _ABSURD_FUTURE_MS:
        return Reason.FAR_FUTURE
    if -age_ms > rules.max_future_seconds * 1000:
        return Reason.NEAR_FUTURE
    return None


def _check_name(name: str) -> Reason | None:
    if len(name.encode()) > limits.MAX_NAME_BYTES:
        return Reason.BAD_FIELD
    return Reason.BAD_FIELD if "\0" in name else None


def _check_groups(groups: Sequence[RolloutGroup], rules: BatchRules) -> Reason | None:
    if not groups:
        return Reason.BAD_COUNT
    swarm_rules = rules.manifest.rules
    ignored: Reason | None = None
    keys = set[int]()
    for group in groups:
        reason = _check_completions(group, swarm_rules) or _check_task(group.task, rules)
        if reason in (Reason.UNKNOWN_FAMILY, Reason.OTHER_VERSION):
            # A later reject takes precedence over an ignore.
            ignored = ignored or reason
        elif reason is not None:
            return reason
        else:
            keys.add(rules.manifest.key_of(group.task))
            # A batch is gossiped on one topic: on another one it would cost those who want none
            # of these families.
            if len(keys) > 1:
                return Reason.BAD_FIELD
    return ignored


def _check_task(task: Task, rules: BatchRules) -> Reason | None:
    if not (task.seed < limits.MAX_SEED and task.index < limits.MAX_INDEX):
        return Reason.BAD_FIELD
    if task.inline is not None:
        return _check_inline(task, rules.manifest.rules)
    if is_reserved(task):
        return Reason.RESERVED_TASK
    family = next((f for f in rules.manifest.families if f.name == task.family), None)
    if family is None or rules.config_digests[family.name] != task.config_digest:
        return Reason.UNKNOWN_FAMILY
    if task.verifier != family.verifier:
        return Reason.UNKNOWN_FAMILY
    if task.verifier_version != family.verifier_version:
        return Reason.OTHER_VERSION
    return None


def is_reserved(task: Task) -> bool:
    """Return whether a task's seed is reserved for evaluation; an inline task has none.

    No node may publish or train on one; otherwise pass@1 would measure memorised answers.
    """
    return task.inline is None and task.seed < limits.MIN_TRAINING_SEED


def is_held_out(question_digest: Digest) -> bool:
    """Return whether a question's digest is in the eighth that is held out for evaluation."""
    return question_digest[:1] < _HELD_OUT_BELOW


def _check_inline(task: Task, rules: SwarmRules) -> Reason | None:
    if not rules.allow_inline_tasks or task.inline is None:
        return Reason.BAD_FIELD
    # Other tasks' names must equal the manifest's; these are free, and are therefore bounded.
    for name in (task.family, task.verifier, task.verifier_version):
        reason = _check_name(name)
        if reason is not None:
            return reason
    for text in (task.inline.question, task.inline.answer):
        if len(text.encode()) > limits.MAX_INLINE_TASK_BYTES or "\0" in text:
            return Reason.BAD_FIELD
    return None


def _check_completions(group: RolloutGroup, rules: SwarmRules) -> Reason | None:
    if not max(1, rules.min_completions) <= len(group.completions) <= rules.max_completions:
        return Reason.BAD_COUNT
    if any(check_completion(completion, rules) for completion in group.completions):
        return Reason.BAD_COMPLETION
    return None


def check_completion(completion: Completion, rules: SwarmRules) -> str | None:
    """Return as text why one completion may not be published, or None. Publishers check this
    before they publish."""
    if not completion.text:
        return "it has no text"
    try:
        num_bytes = len(completion.text.encode())
    except UnicodeEncodeError:
        return "it holds half a character (a lone surrogate)"
    if num_bytes > rules.max_completion_bytes:
        return f"it is longer than {rules.max_completion_bytes} bytes"
    if "\0" in completion.text:
        return "it holds a NUL character"
    # A token is at least a byte of text or the end token; merges of bytes only lower the count.
    if not 1 <= completion.num_tokens <= 4 * num_bytes + 8:
        return "its number of tokens does not fit its text"
    logprobs = completion.logprobs
    if logprobs is not None and not (
        len(logprobs) == completion.num_tokens
        and all(math.isfinite(value) and value <= _MAX_LOGPROB for value in logprobs)
    ):
        return "its log-probabilities are not one number of at most 0 for each token"
    return None

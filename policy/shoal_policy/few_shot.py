"""Chooses the worked examples before a policy's questions: a fixed number, or by a trial at start.

    examples, trials ──▶ answers without, answers with ──▶ which gives signal? ──▶ shots.json
    (seeds of their own)                                        one entry per family, for restarts

A group has signal if its rewards differ: only such a group trains anything. Trials are neither
shared nor trained on, and change no random state of the training.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from shoal_base.files import write_atomically
from shoal_policy.choice.advantage import has_signal
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.local import OnStep
from shoal_policy.generation.local_generator import LocalGenerator
from shoal_policy.generation.questions import template_refusals
from shoal_policy.model.examples import NO_EXAMPLES, FamilyExamples, FewShotExamples, common_prefix
from shoal_policy.model.loading import ModelError, Policy, PromptFormat
from shoal_policy.model.prompting import encode_prompt
from shoal_policy.record.phases import Phase
from shoal_policy.rollouts import OwnGroup, Question, sampling_params
from shoal_policy.tasks import TaskSource
from shoal_policy.trainer_context import Interrupted, TrainerContext
from shoal_settings.schema import Settings
from shoal_tasks.prompts import Example
from shoal_tasks.spec import FamilySpec
from shoal_wire.types import FinishReason, SamplingParams

log = logging.getLogger(__name__)

CHOICE_FILE: Final = "shots.json"
AUTO: Final = 4
"""Examples that `auto` tries."""

EXTRA_EXAMPLES = 2
"""Spare examples: they replace one that is the question itself."""
_FORMAT = 1
_NUM_TRIALS = 4
"""Questions tried per family, and answers to each: a guess, since the start waits for them."""
_MAX_EXAMPLE_TOKENS = 2048
"""Maximum tokens of a family's examples together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """Result of one family's trials, with or without examples."""

    signal: int
    """Number of groups whose rewards differ."""
    reward: float
    """Mean over all answers."""
    ended: float
    """Share of answers that stopped by themselves."""

    @property
    def score(self) -> tuple[float, float, float]:
        """Return the sort key: signal, then reward, then answers that stopped by themselves."""
        return (self.signal, self.reward, self.ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class FewShotChoice:
    """The choice for a family, and the trials it is based on."""

    shots: int
    without: TrialResult
    shown: TrialResult
    """Result with examples."""
    trials: int
    """Questions tried with and without examples."""


def add_few_shot(
    policy: Policy,
    settings: Settings,
    context: TrainerContext,
    *,
    cache_dir: Path | None,
    has_begun: bool = False,
) -> Policy:
    """Return the policy with the configured examples, running trials if necessary.

    Results are stored in `cache_dir`. A run that `has_begun` without stored results was trained
    without examples, and continues so. On a stop there are no examples. Raises ModelError if the
    model's format has no place for configured examples, and what the task worker raises.
    """
    count = AUTO if settings.shots == "auto" else int(settings.shots)
    if policy.prompt_format is PromptFormat.TINY:
        if settings.shots not in ("auto", "0"):
            raise ModelError(
                f"model {policy.name!r} does not support worked examples: omit --shots"
            )
        return policy
    if count == 0 or (settings.shots == "auto" and settings.generator != "self"):
        return policy
    full = replace(policy, few_shot=build_few_shot(policy, context.tasks, count))
    if settings.shots != "auto":
        return full
    cache = _TrialCache(cache_dir, full, sampling_params(settings), settings.prompt)
    if has_begun and not cache.exists:
        log.info("this run began without worked examples and continues so; --shots N adds some")
        return policy
    try:
        chosen = _choose(full, context, cache)
    except Interrupted:
        return policy
    families = full.few_shot.families
    return replace(
        policy, few_shot=FewShotExamples({name: families[name] for name in chosen if chosen[name]})
    )


def load_choice(folder: Path, spec: FamilySpec) -> int | None:
    """Return the number of examples that a run in this folder chose for a family, or None."""
    try:
        families = json.loads((folder / CHOICE_FILE).read_text())["families"]
        return int(families[spec.digest.hex()]["shots"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def build_few_shot(policy: Policy, tasks: TaskSource, count: int) -> FewShotExamples:
    """Return `count` examples of every family that has some, or as many as fit its prompts."""
    found = {}
    for family, examples in tasks.examples(count + EXTRA_EXAMPLES).items():
        questions = tasks.trials(family, _NUM_TRIALS)
        if not examples or not questions:
            continue
        shown = _fit_examples(policy, examples, questions, count)
        if shown is not None:
            found[family] = shown
    return FewShotExamples(found)


def _fit_examples(
    policy: Policy, examples: Sequence[Example], questions: Sequence[Question], count: int
) -> FamilyExamples | None:
    """Return the most examples, at most `count`, that fit; None if not even one does."""
    max_tokens = min(_MAX_EXAMPLE_TOKENS, policy.max_positions // 2)
    for number in range(min(count, len(examples)), 0, -1):
        shown = FamilyExamples(count=number, examples=tuple(examples))
        first = questions[0]
        # With a one-letter question: the common prefix ends where a question begins.
        with template_refusals(policy):
            prompts = [
                encode_prompt(
                    policy,
                    text,
                    tagged=first.tagged,
                    system=first.system,
                    examples=shown.examples[:number],
                )
                for text in ("x", *(one.text for one in questions))
            ]
        prefix = common_prefix(prompts)
        if len(prefix) <= max_tokens:
            return replace(shown, prefix=prefix)
    return None


class _TrialCache:
    """The trial results of earlier starts, in a file of the run's folder."""

    def __init__(
        self, folder: Path | None, policy: Policy, sampling: SamplingParams, prompt: str
    ) -> None:
        self.sampling = sampling
        self._path = None if folder is None else folder / CHOICE_FILE
        how = [policy.name, policy.tokenizer_digest.hex(), AUTO, asdict(sampling), _FORMAT]
        # The default adds nothing, so that results from before there was a choice stay valid.
        how += [] if prompt == "auto" else [prompt]
        self._key = hashlib.sha256(json.dumps(how).encode()).hexdigest()[:16]
        self.exists = self._path is not None and self._path.exists()

    def read(self) -> dict[str, int]:
        """Return the number of examples by family digest; empty if nothing matches."""
        try:
            document = json.loads(self._path.read_text()) if self._path else {}
            if document["key"] != self._key:
                return {}
            return {str(name): int(one["shots"]) for name, one in document["families"].items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return {}

    def add(self, choices: Mapping[str, tuple[str, FewShotChoice]]) -> None:
        """Store choices, by family digest with the family's name."""
        if self._path is None:
            return
        earlier: dict[str, Any] = {}
        if self.read():
            earlier = json.loads(self._path.read_text())["families"]
        made = {digest: {"family": name, **asdict(one)} for digest, (name, one) in choices.items()}
        document = {"key": self._key, "families": earlier | made}
        try:
            write_atomically(self._path, json.dumps(document, indent=1).encode())
        except OSError as error:
            # Continuing could give a restart other prompts than the run began with.
            raise ModelError(f"cannot write {self._path}: {error.strerror}") from error


def _choose(policy: Policy, context: TrainerContext, cache: _TrialCache) -> dict[str, int]:
    """Return the number of examples for each family, stored or from new trials."""
    families = policy.few_shot.families
    digests = {name: context.tasks.digest(name) for name in families}
    known = cache.read()
    missing = [name for name in families if digests[name] not in known]
    if missing:
        log.info("trying, once, whether worked examples help (task families: %d)", len(missing))
        choices = _run_trials(policy, context, missing, cache.sampling)
        cache.add({digests[name]: (name, one) for name, one in choices.items()})
        known |= {digests[name]: one.shots for name, one in choices.items()}
    return {name: known[digests[name]] for name in families}


def _run_trials(
    policy: Policy, context: TrainerContext, families: Sequence[str], sampling: SamplingParams
) -> dict[str, FewShotChoice]:
    """Run each family's trials without and with examples. Raises Interrupted on a stop."""
    questions = [one for name in families for one in context.tasks.trials(name, _NUM_TRIALS)]
    num_answers = len(questions) * _NUM_TRIALS
    context.phases.enter(Phase.TRYING, of=2 * num_answers)

    def step(part: int) -> OnStep:
        def on_trial_step(done: int, fraction: float) -> None:
            if context.should_stop():
                raise Interrupted
            context.phases.step(part * num_answers + done, (part + fraction) / 2)

        return on_trial_step

    bare = replace(policy, few_shot=NO_EXAMPLES)
    without = _run_trial(bare, context.tasks, questions, sampling, step(0))
    shown = _run_trial(policy, context.tasks, questions, sampling, step(1))
    choices = {}
    for name in families:
        count = policy.few_shot.families[name].count
        choices[name] = FewShotChoice(
            shots=count if shown[name].score > without[name].score else 0,
            without=without[name],
            shown=shown[name],
            trials=sum(question.task.family == name for question in questions),
        )
        log.info("%s", _line(name, count, choices[name]))
    return choices


def _line(family: str, count: int, one: FewShotChoice) -> str:
    taken = f"{one.shots} worked examples" if one.shots else "no worked examples"
    return (
        f"{family}: {taken}: signal in {one.shown.signal} of {one.trials} groups with {count}, "
        f"in {one.without.signal} without; reward {one.shown.reward:.2f} and "
        f"{one.without.reward:.2f}"
    )


def _run_trial(
    policy: Policy,
    tasks: TaskSource,
    questions: Sequence[Question],
    sampling: SamplingParams,
    on_step: OnStep,
) -> dict[str, TrialResult]:
    """Answer the trials, by family. A question that does not fit earns nothing."""
    groups = LocalGenerator().generate(
        GenerationRequest(
            questions=questions,
            policy=policy,
            policy_version=0,
            num_completions=_NUM_TRIALS,
            sampling=sampling,
            seed=0,
            play=tasks.play,
            on_step=on_step,
        )
    )
    found: dict[str, list[tuple[OwnGroup, list[float]]]] = {q.task.family: [] for q in questions}
    for group, rewards in zip(groups, tasks.verify_own(groups), strict=True):
        found[group.question.task.family].append((group, rewards))
    return {family: _summarise(rows) for family, rows in found.items()}


def _summarise(rows: Sequence[tuple[OwnGroup, list[float]]]) -> TrialResult:
    rewards = [reward for _, earned in rows for reward in earned]
    answers = [answer for group, _ in rows for answer in group.answers]
    ended = sum(answer.finish_reason is FinishReason.STOP for answer in answers)
    return TrialResult(
        signal=sum(has_signal(earned) for _, earned in rows),
        reward=sum(rewards) / max(1, len(rewards)),
        ended=ended / max(1, len(answers)),
    )
